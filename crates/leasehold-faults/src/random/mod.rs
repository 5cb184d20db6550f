//! Random faults of servers and holders: rounds of worlds, each with a schedule that is drawn from the seed.

mod episodes;
mod fence;
mod holders;
mod plan;
mod sampler;
mod schedule;
mod server_faults;
mod servers;
mod world;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use self::plan::Plan;
use self::servers::Servers;
use self::world::World;
use crate::checker::{self, CheckReport};
use crate::clock;
use crate::history::{self, Journal, Note};

/// How far the wall clock may drift from the other in a round without having been set.
const WALL_DRIFT_MAX: u64 = clock::MILLI / 2;

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
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
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

/// Stops the sampler, also if a thread of the world panics.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
