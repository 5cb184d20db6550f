//! Random faults of servers and holders: rounds of worlds, each with a schedule that is drawn from the seed.

mod episodes;
mod holders;
mod plan;
mod sampler;
mod server_faults;
mod servers;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use self::plan::Plan;
use self::servers::Servers;
use crate::checker::{self, CheckReport};
use crate::clock;
use crate::fence;
use crate::history::{self, Fault, Journal, Note};

/// How far the wall clock may drift from the other in a round without having been set.
const WALL_DRIFT_MAX: u64 = clock::MILLI / 2;

/// How far a clock is set at most, in milliseconds.
const CLOCK_STEP_MAX_MS: u64 = 1500;

/// The number of rounds, and of worlds in each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) rounds: u64,
    /// Worlds with a single server.
    pub(crate) single: u64,
    /// Worlds with many masters.
    pub(crate) masters: u64,
    pub(crate) round_ms: u64,
}

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

/// The state that all threads of a world share.
struct World {
    plan: Plan,
    directory: PathBuf,
    servers: Servers,
    /// The port of the fenced resource.
    fence: u16,
    begin: Instant,
    journal: Arc<Journal>,
}

impl World {
    fn note(&self, note: &Note) {
        self.journal.record(note);
    }

    /// Sleeps until a time of the plan; not at all if it has passed.
    fn sleep_until(&self, at_ms: u64) {
        let at = self.begin + Duration::from_millis(at_ms);
        thread::sleep(at.saturating_duration_since(Instant::now()));
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.round_ms / 1000;
        let (rounds, single, masters) = (self.rounds, self.single, self.masters);
        write!(
            f,
            "{rounds} × {seconds} s, {single} servers and {masters} sets of masters side by side"
        )
    }
}

/// Runs all worlds of a round at the same time and checks their histories. `keep` gets the directory of each, with the
/// violations in it.
pub(crate) fn run_round(
    size: Size,
    seed: u64,
    round: u64,
    keep: impl Fn(&Path, u64, &CheckReport),
) -> CheckReport {
    // Where temporary files are: a holder must not wait for a disk in the middle of a step.
    let directory = tempfile::tempdir().unwrap();
    let single = (0..size.single).map(|number| Plan::draw(seed, round, number, size.round_ms));
    let masters =
        (0..size.masters).map(|world| Plan::draw_masters(seed, round, world, size.round_ms));
    let mut worlds: Vec<_> = single
        .chain(masters)
        .enumerate()
        .map(|(number, plan)| prepare(directory.path().join(format!("world-{number}")), plan))
        .collect();
    let wall = clock::wall_offset();
    thread::scope(|scope| {
        for world in &mut worlds {
            scope.spawn(move || run(world));
        }
    });
    let wall_moved = clock::wall_offset().abs_diff(wall) > WALL_DRIFT_MAX;
    let mut all = CheckReport::default();
    for (number, world) in (0..).zip(&worlds) {
        world.note(&Note::World(history::World {
            wall: (!world.plan.clock && !wall_moved).then_some(wall),
            servers: world.plan.servers,
            replicated: false,
            watched: false,
        }));
        let report = checker::check(&history::read(&world.directory));
        keep(&world.directory, number, &report);
        all.merge(report);
    }
    all
}

fn prepare(directory: PathBuf, plan: Plan) -> World {
    fs::create_dir_all(&directory).unwrap();
    let journal = Arc::new(Journal::open(&directory.join("campaign.jsonl")));
    World {
        fence: fence::start(Arc::clone(&journal)),
        servers: Servers::start(&plan),
        begin: Instant::now(),
        plan,
        directory,
        journal,
    }
}

/// Runs the schedule of a world.
fn run(world: &mut World) {
    world.begin = Instant::now();
    let world = &*world;
    let stop = CancellationToken::new();
    thread::scope(|scope| {
        // Also if a thread of the world panics.
        let _stop = stop.clone().drop_guard();
        scope.spawn(|| sampler::run(world, &stop));
        thread::scope(|faults| {
            for number in 0..world.plan.holders.len() {
                faults.spawn(move || holders::run(world, number));
            }
            for sequence in &world.plan.sequences {
                faults.spawn(move || server_faults::run(world, sequence));
            }
        });
    });
    sampler::check_remaining(world);
}
