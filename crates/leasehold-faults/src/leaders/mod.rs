//! Changes of leader: candidates and observers of a few elections, on each kind of store, while leaders are killed and
//! stopped and servers fail over.

mod outcome;
mod progress;
mod stores;
mod world;

use std::path::Path;
use std::thread;

pub(crate) use self::outcome::Row;

use self::outcome::Outcome;
use self::stores::{LONGEST_TTL_MS, StoreKind};
use self::world::World;
use crate::checker::{self, CheckReport};
use crate::scenario::{Form, caught};
use crate::{clock, history};

/// The elections of a world. Each candidate campaigns in all of them.
const ELECTIONS: [&str; 4] = ["scheduler", "compactor", "billing", "archiver"];

/// How far the wall clock may drift from the other in a world without having been set.
const WALL_DRIFT_MAX: u64 = clock::MILLI / 2;

/// A scenario: a kind of store.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    description: &'static str,
    store: StoreKind,
    /// The ttls of candidates.
    ttls_ms: &'static [u64],
    /// The number of changes, and that of the short form.
    changes: usize,
    short: usize,
}

/// Some leases outlast a failover. A longer one would have 3 s until its first renewal, if a waiter was granted it.
const SENTINEL_TTLS_MS: &[u64] = &[2_000, 3_000];

/// All scenarios.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "leaders-single",
        description: "a server with `appendfsync always`, killed and restarted with its data",
        store: StoreKind::Single,
        ttls_ms: &[400, 600, 1_000],
        changes: 500,
        short: 6,
    },
    Scenario {
        name: "leaders-file",
        description: "a file of SQLite",
        store: StoreKind::File,
        ttls_ms: &[400, 600, 1_000],
        changes: 500,
        short: 6,
    },
    Scenario {
        name: "leaders-masters",
        description: "three masters, of which one is killed and restarted with or without its data",
        store: StoreKind::Masters,
        ttls_ms: &[LONGEST_TTL_MS],
        changes: 400,
        short: 4,
    },
    Scenario {
        name: "leaders-sentinel",
        description: "Sentinel with two replicas, failovers by order, by `kill -9` and by `SIGSTOP` of the master",
        store: StoreKind::Sentinel { replicated: false },
        ttls_ms: SENTINEL_TTLS_MS,
        changes: 300,
        short: 0,
    },
    Scenario {
        name: "leaders-replicated",
        description: "the same, and all replicas acknowledge each grant",
        store: StoreKind::Sentinel { replicated: true },
        ttls_ms: SENTINEL_TTLS_MS,
        changes: 300,
        short: 4,
    },
];

/// Runs scenarios side by side. `keep` gets the directory of each history, with the name of the scenario.
pub(crate) fn run(
    scenarios: &[&'static Scenario],
    form: Form,
    seed: u64,
    keep: impl Fn(&Path, &str, &CheckReport) + Sync,
) -> Vec<Row> {
    let keep = &keep;
    thread::scope(|scope| {
        let running: Vec<_> = (seed..)
            .zip(scenarios)
            .filter(|(_, scenario)| scenario.changes(form) > 0)
            .map(|(seed, scenario)| scope.spawn(move || scenario.run(form, seed, keep)))
            .collect();
        let rows = running.into_iter().map(|row| row.join().unwrap());
        rows.collect()
    })
}

impl Scenario {
    /// The number of changes of a form.
    fn changes(&self, form: Form) -> usize {
        form.runs(self.changes, self.short)
    }

    fn run(&'static self, form: Form, seed: u64, keep: &impl Fn(&Path, &str, &CheckReport)) -> Row {
        let changes = self.changes(form);
        eprintln!("{}: {changes} changes", self.name);
        // Where temporary files are: a candidate must not wait for a disk.
        let directory = tempfile::tempdir().unwrap();
        let wall = clock::wall_offset();
        let mut world = World::start(self, seed, directory.path().to_owned());
        let finished = caught(|| {
            world.run(changes);
            world.finish();
        });
        if let Err(panic) = finished {
            world.violation(format!("the campaign failed: {panic}"));
        }
        let wall_moved = clock::wall_offset().abs_diff(wall) > WALL_DRIFT_MAX;
        world.record((!wall_moved).then_some(wall));
        let after_kill = std::mem::take(&mut world.after_kill);
        // Ends the processes that are left after a failure.
        drop(world);
        let report = checker::check(&history::read(directory.path()));
        keep(directory.path(), self.name, &report);
        let row = Outcome { report, after_kill }.row(self.name, self.description);
        eprintln!("{}: {}", self.name, row.summary());
        row
    }
}
