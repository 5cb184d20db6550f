//! Random faults of stores and holders: rounds of worlds, each with a schedule that is drawn from the seed.

mod bucket;
mod cluster;
mod episodes;
mod etcd;
mod file;
mod holders;
mod plan;
mod postgres;
mod sampler;
mod server_faults;
mod servers;
mod soak;
mod zookeeper;

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use leasehold::{Client, LockInfo};
use leasehold_testkit::{Etcd, Zookeeper};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use self::bucket::Bucket;
use self::cluster::Cluster;
use self::plan::{LONG_TTLS_MS, NAMES, PROXIED_FAULTS, Plan};
use self::postgres::Postgres;
use self::servers::Servers;
pub(crate) use self::soak::SCENARIOS as SOAKS;
use crate::checker::CheckReport;
use crate::clock::{self, DriftingClock};
use crate::history::{self, Fault, FaultEvent, Note};
use crate::holder_process::HolderProcess;
use crate::scenario::{Outcome, RANDOM, Run, Scenario};
use crate::world::Recording;

/// Each run is a world; all worlds run side by side.
pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario(
        "single",
        (12, 8),
        |run| rounds::<Servers>(run, Plan::draw),
        "worlds with one server and three holder processes",
    ),
    scenario(
        "masters",
        (4, 2),
        |run| rounds::<Servers>(run, Plan::draw_masters),
        "worlds with three or five masters and three holder processes",
    ),
    scenario(
        "postgres",
        (1, 1),
        rounds_of::<Postgres>,
        "a world with a PostgreSQL server and three holder processes",
    ),
    scenario(
        "etcd",
        (1, 1),
        rounds_of::<Cluster<Etcd>>,
        "a world with an etcd cluster of three members and three holder processes",
    ),
    scenario(
        "zookeeper",
        (1, 1),
        rounds_of::<Cluster<Zookeeper>>,
        "a world with a ZooKeeper ensemble of three servers and three holder processes",
    ),
    scenario(
        "bucket",
        (1, 1),
        rounds_of::<Bucket>,
        "a world with a bucket of an S3 server and three holder processes with clocks 1 % apart",
    ),
];

const fn scenario(
    name: &'static str,
    worlds: (usize, usize),
    run: fn(&Run) -> Outcome,
    description: &'static str,
) -> Scenario {
    Scenario::new(RANDOM, 0, name, worlds, run, description)
}

/// How far a clock is set at most, in milliseconds.
const CLOCK_STEP_MAX_MS: u64 = 1500;

/// The length of a round.
const ROUND: Duration = Duration::from_secs(60);

/// How long the reading of the holders at the end of a round may take on a busy machine, and when it is tried again.
const READ_TIMEOUT: Duration = Duration::from_secs(120);
const READ_INTERVAL: Duration = Duration::from_millis(100);

/// How long locks may stay held while all processes rest. The longest ttl is 4 s.
const REST_TIMEOUT: Duration = Duration::from_secs(20);

/// Faults one after the other: of a server, or of the connections of one holder to it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sequence {
    server: usize,
    holder: Option<usize>,
    faults: Vec<Timed>,
}

/// A fault and when it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Timed {
    at_ms: u64,
    fault: Fault,
    /// How long it lasts, or how far a clock is set.
    length_ms: u64,
    /// The number of the name whose keys it hits, if it hits one.
    name: usize,
}

/// The servers of a world, and their faults.
trait Store: Send + Sync + Sized + 'static {
    /// Whether the time in a token is that of its grant.
    const HAS_TIMES: bool;

    /// The length of the round in the short form.
    const SHORT: Duration = Duration::from_secs(20);

    /// The ttls of holder processes, in milliseconds.
    const TTLS_MS: [u64; 4] = LONG_TTLS_MS;

    /// The number of kinds of faults of connections.
    const LINK_FAULTS: u8 = PROXIED_FAULTS;

    /// The faults of the server that are equally likely. Redis has a schedule of its own.
    const FAULTS: &'static [Fault] = &[];

    /// The clock of a holder. `None`: that of the machine.
    fn clock(_holder: usize) -> Option<DriftingClock> {
        None
    }

    fn start(plan: &Plan) -> Self;

    /// The URL by which a holder reaches it.
    fn url(&self, holder: usize) -> String;

    /// Whether a fault may happen now.
    fn may_inject(&self, _: &Sequence, _: &Timed) -> bool {
        true
    }

    /// Injects a fault, and ends it.
    fn inject(&self, sequence: &Sequence, timed: &Timed);

    /// What its servers use now, while no fault is injected.
    fn usage(&self) -> Usage;

    /// Observes the records until it is to stop.
    fn sample(_: &World<Self>, _: &CancellationToken) {}

    /// Records what remains after all holders have ended.
    fn check_remaining(world: &World<Self>) {
        record_holders(world);
    }
}

/// The holder processes of a world that rest, by their numbers. `None`: it is to be started.
type Processes = Vec<Option<HolderProcess>>;

/// What the servers of a store use.
#[derive(Default)]
struct Usage {
    pids: Vec<i32>,
    /// The directories of their data.
    data: Vec<PathBuf>,
    /// The number of keys, rows, nodes or objects, without the descriptions of clients, which outlive them. `None`: unknown.
    entries: Option<usize>,
}

/// The state that all threads of a world share.
struct World<S> {
    plan: Plan,
    /// The number of the part of a soak.
    part: u64,
    /// Whether the holder processes rest after the plan, and do not end.
    rests: bool,
    recording: Recording,
    store: S,
    /// The port of the fenced resource.
    fence: u16,
    begin: Instant,
}

impl<S> World<S> {
    fn note(&self, note: &Note) {
        self.recording.journal.record(note);
    }

    /// Sleeps until a time of the plan; not at all if it has passed.
    fn sleep_until(&self, at_ms: u64) {
        let at = self.begin + Duration::from_millis(at_ms);
        thread::sleep(at.saturating_duration_since(Instant::now()));
    }
}

/// Draws a plan from the seed, the number of the round, that of the world, and its duration in milliseconds.
type Draw = fn(u64, u64, u64, u64) -> Plan;

fn rounds_of<S: Store>(run: &Run) -> Outcome {
    rounds::<S>(run, Plan::draw_of::<S>)
}

fn rounds<S: Store>(run: &Run, draw: Draw) -> Outcome {
    let (rounds, length) = match run.form.minutes {
        0 => (1, S::SHORT),
        minutes => (minutes, ROUND),
    };
    let mut outcome = Outcome::default();
    for round in 0..rounds {
        let length_ms = length.as_millis() as u64;
        let plans = (0..run.count as u64).map(|world| draw(run.seed, round, world, length_ms));
        let report = run_round::<S>(run, round, plans.collect());
        let (name, number, summary) = (run.name, round + 1, report.summary());
        println!("{name}, round {number} of {rounds}: {summary}");
        outcome.report.merge(report);
        outcome.runs += run.count;
    }
    outcome
}

/// Runs all worlds of a round at the same time and checks their histories.
fn run_round<S: Store>(run: &Run, round: u64, plans: Vec<Plan>) -> CheckReport {
    let mut worlds: Vec<World<S>> = plans.into_iter().map(prepare).collect();
    thread::scope(|scope| {
        for world in &mut worlds {
            scope.spawn(move || run_world(world, Vec::new()));
        }
    });
    let mut all = CheckReport::default();
    for (number, world) in worlds.iter().enumerate() {
        all.merge(check(run, world, &format!("-{round}-{number}")));
    }
    all
}

/// Checks the history of a world.
fn check<S: Store>(run: &Run, world: &World<S>, label: &str) -> CheckReport {
    let note = history::WorldInfo {
        servers: world.plan.servers,
        ..history::WorldInfo::default()
    };
    let has_times = S::HAS_TIMES && !world.plan.clock;
    world.recording.check(run, label, has_times, note)
}

fn prepare<S: Store>(plan: Plan) -> World<S> {
    let recording = Recording::start();
    World {
        fence: recording.fence(),
        store: S::start(&plan),
        begin: Instant::now(),
        plan,
        part: 0,
        rests: false,
        recording,
    }
}

/// Runs the schedule of a world, at first with the processes that rest. Returns those that rest then.
fn run_world<S: Store>(world: &mut World<S>, resting: Processes) -> Processes {
    world.recording.begin();
    world.begin = Instant::now();
    let world = &*world;
    let stop = CancellationToken::new();
    let mut resting = resting.into_iter();
    let processes = thread::scope(|scope| {
        // Also if a thread of the world panics.
        let _stop = stop.clone().drop_guard();
        scope.spawn(|| S::sample(world, &stop));
        thread::scope(|faults| {
            let running = (0..world.plan.holders.len()).map(|number| {
                let process = resting.next().flatten();
                faults.spawn(move || holders::run(world, number, process))
            });
            let running: Vec<_> = running.collect();
            for sequence in &world.plan.sequences {
                faults.spawn(move || inject_all(world, sequence));
            }
            let ended = running.into_iter().map(|holder| holder.join().unwrap());
            ended.collect()
        })
    });
    S::check_remaining(world);
    processes
}

/// Injects the faults of a sequence.
fn inject_all<S: Store>(world: &World<S>, sequence: &Sequence) {
    for timed in &sequence.faults {
        world.sleep_until(timed.at_ms);
        if !world.store.may_inject(sequence, timed) {
            continue;
        }
        let begin = clock::now();
        world.store.inject(sequence, timed);
        let time = (begin, clock::now());
        let hits_one = matches!(
            timed.fault,
            Fault::DeleteRecord | Fault::WrongRecord | Fault::WrongQueue | Fault::WrongCounter
        );
        world.note(&Note::Fault(FaultEvent {
            master: Some(sequence.server),
            holder: sequence.holder,
            name: hits_one.then(|| NAMES[timed.name].to_owned()),
            ..FaultEvent::new(timed.fault, None, time, time)
        }));
    }
}

/// Records who holds the locks, as a new client reads it. While processes rest, it first waits until no lock is held: a guard
/// that was dropped is released in the background, and the lease of a dead process has a ttl.
fn record_holders<S: Store>(world: &World<S>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().unwrap();
    let (url, end) = (world.store.url(0), Instant::now() + READ_TIMEOUT);
    if world.rests
        && let Some(held) = runtime.block_on(held_at_rest(&url))
    {
        let text = format!("P8 held while all processes rest: {held:?}");
        world.note(&Note::Violation(text));
    }
    let holders = loop {
        match runtime.block_on(read_holders(&url)) {
            Ok(holders) => break holders,
            Err(error) if Instant::now() >= end => {
                panic!("the holders at the end were not read in {READ_TIMEOUT:?}: {error}")
            }
            Err(_) => thread::sleep(READ_INTERVAL),
        }
    };
    for (name, lease) in holders {
        world.note(&Note::HeldAtEnd { name, lease });
    }
}

/// The locks that stay held for too long while all processes rest, or why they cannot be read. `None`: there are none.
async fn held_at_rest(url: &str) -> Option<leasehold::Result<Vec<LockInfo>>> {
    let (client, end) = (OnceCell::new(), Instant::now() + REST_TIMEOUT);
    loop {
        let held = read_held(&client, url).await;
        match &held {
            Ok(locks) if locks.is_empty() => return None,
            _ if Instant::now() >= end => return Some(held),
            _ => tokio::time::sleep(READ_INTERVAL).await,
        }
    }
}

/// The locks whose leases have not ended. One client reads each lock repeatedly: in a store without a clock, the lease of a
/// dead process ends a ttl after a client has first read that lock. A list does not count.
async fn read_held(client: &OnceCell<Client>, url: &str) -> leasehold::Result<Vec<LockInfo>> {
    let client = client.get_or_try_init(|| Client::connect(url)).await?;
    let mut held = Vec::new();
    for lock in client.locks().await? {
        let holder = client.mutex(&lock.name)?.holder().await?;
        held.extend(holder.filter(|holder| !holder.time_left.is_zero()));
    }
    Ok(held)
}

/// The names of the locks that are held, and their leases.
async fn read_holders(url: &str) -> leasehold::Result<Vec<(String, String)>> {
    let client = Client::connect(url).await?;
    let mut holders = Vec::new();
    for name in NAMES {
        if let Some(holder) = client.mutex(name)?.holder().await? {
            holders.push((name.to_owned(), holder.lease.to_string()));
        }
    }
    Ok(holders)
}
