//! Random faults of servers and holders: rounds of worlds, each with a schedule that is drawn from the seed.

mod episodes;
mod holders;
mod plan;
mod sampler;
mod server_faults;
mod servers;

use std::thread;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use self::plan::Plan;
use self::servers::Servers;
use crate::checker::CheckReport;
use crate::history::{self, Fault, Note};
use crate::scenario::{Outcome, RANDOM, Run, Scenario};
use crate::world::Recording;

/// Each run is a world; all worlds of a round run side by side.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        RANDOM,
        0,
        "single",
        (12, 8),
        |run| rounds(run, Plan::draw),
        "",
        "worlds with one server and three holder processes",
    ),
    Scenario::new(
        RANDOM,
        0,
        "masters",
        (4, 2),
        |run| rounds(run, Plan::draw_masters),
        "",
        "worlds with three or five masters and three holder processes",
    ),
];

/// How far a clock is set at most, in milliseconds.
const CLOCK_STEP_MAX_MS: u64 = 1500;

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
    recording: Recording,
    servers: Servers,
    /// The port of the fenced resource.
    fence: u16,
    begin: Instant,
}

impl World {
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

fn rounds(run: &Run<'_>, draw: Draw) -> Outcome {
    let mut outcome = run.rounds(|round, length| {
        let length_ms = length.as_millis() as u64;
        let plans = (0..run.count as u64).map(|world| draw(run.seed, round, world, length_ms));
        run_round(run, round, plans.collect())
    });
    let (rounds, length) = run.form.rounds();
    let (worlds, seconds) = (run.count, length.as_secs());
    outcome.note(format!(
        "{rounds} × {seconds} s, {worlds} worlds side by side"
    ));
    outcome
}

/// Runs all worlds of a round at the same time and checks their histories.
fn run_round(run: &Run<'_>, round: u64, plans: Vec<Plan>) -> CheckReport {
    let mut worlds: Vec<_> = plans.into_iter().map(prepare).collect();
    thread::scope(|scope| {
        for world in &mut worlds {
            scope.spawn(move || run_world(world));
        }
    });
    let mut all = CheckReport::default();
    for (number, world) in worlds.iter().enumerate() {
        let note = history::World {
            servers: world.plan.servers,
            ..history::World::default()
        };
        let (label, has_times) = (format!("-{round}-{number}"), !world.plan.clock);
        all.merge(world.recording.check(run, &label, has_times, note));
    }
    all
}

fn prepare(plan: Plan) -> World {
    let recording = Recording::start();
    World {
        fence: recording.fence(),
        servers: Servers::start(&plan),
        begin: Instant::now(),
        plan,
        recording,
    }
}

/// Runs the schedule of a world.
fn run_world(world: &mut World) {
    world.recording.begin();
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
