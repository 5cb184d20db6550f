//! Changes of leader: candidates and observers of a few elections, on each kind of store, while leaders are killed and
//! stopped and servers fail over.

mod progress;
mod stores;
mod world;

use self::stores::StoreKind;
use self::world::World;
use crate::history;
use crate::scenario::{LEADERS, Outcome, Run, Scenario};

/// The elections of a world. Each candidate campaigns in all of them.
const ELECTIONS: [&str; 4] = ["scheduler", "compactor", "billing", "archiver"];

/// A run is a change of leader; the latency is that from a kill to the successor. Side by side after the random faults.
pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario(
        "leaders-single",
        (500, 6),
        |run| lead(run, StoreKind::Single),
        "a server with `appendfsync always`, killed and restarted with its data",
    ),
    scenario(
        "leaders-file",
        (500, 6),
        |run| lead(run, StoreKind::File),
        "a file of SQLite",
    ),
    scenario(
        "leaders-masters",
        (400, 4),
        |run| lead(run, StoreKind::Masters),
        "three masters, of which one is killed and restarted with or without its data",
    ),
    scenario(
        "leaders-sentinel",
        (300, 0),
        |run| lead(run, StoreKind::Sentinel { replicated: false }),
        "Sentinel with two replicas, failovers by order, by `kill -9` and by `SIGSTOP` of the master",
    ),
    scenario(
        "leaders-replicated",
        (300, 4),
        |run| lead(run, StoreKind::Sentinel { replicated: true }),
        "the same, and all replicas acknowledge each grant",
    ),
    scenario(
        "leaders-standby",
        (300, 0),
        |run| lead(run, StoreKind::Postgres { synchronous: false }),
        "PostgreSQL with a standby, promoted after or before a crash of the primary",
    ),
    scenario(
        "leaders-synchronous",
        (300, 4),
        |run| lead(run, StoreKind::Postgres { synchronous: true }),
        "the same, and the standby acknowledges each commit",
    ),
];

const fn scenario(
    name: &'static str,
    changes: (usize, usize),
    run: fn(&Run) -> Outcome,
    description: &'static str,
) -> Scenario {
    Scenario::new(LEADERS, 1, name, changes, run, description)
}

/// Makes so many changes of leader in a world with such a store.
fn lead(run: &Run, kind: StoreKind) -> Outcome {
    let mut world = World::start(kind, run.seed);
    world.run(run.count);
    world.finish();
    // The tokens of a file have the time of its own clock.
    let has_times = kind != StoreKind::File;
    let note = history::WorldInfo {
        servers: kind.servers(),
        replicated: kind.keeps_grants(),
        ..history::WorldInfo::default()
    };
    let report = world.recording.check(run, "", has_times, note);
    Outcome {
        runs: world.changes(),
        report,
        latencies: world.after_kill,
        notes: Vec::new(),
    }
}
