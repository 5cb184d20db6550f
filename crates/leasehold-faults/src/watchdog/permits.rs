//! Processes that share the permits of a semaphore, one of which is killed every second.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use leasehold_testkit::shared_number;

use super::contended_lock::{HolderOptions, LATEST, TTL_LONG};
use super::world::{Node, World, millis};
use crate::clock::{self, Nanos};
use crate::history;
use crate::holder::{HolderConfig, KeepConfig, PermitsConfig, Workload};
use crate::holder_process::HolderProcess;
use crate::scenario::{Outcome, Run};

const PROCESSES: u32 = 8;
const PERMITS: u32 = 5;

/// A process is killed in each of these intervals.
const INTERVAL: Duration = millis(1_000);

/// The ttl without a watchdog: the permit of a dead process is back before the next is killed.
const TTL: Duration = millis(900);

/// The time from a death to the next holder without a watchdog: the ttl, 1 % of it, and 50 ms.
const BACK_MAX: Duration = millis(959);

/// The age of a holder that is killed: a node has acknowledged its lease.
const AGE: Duration = millis(30);

/// How often the holders are counted.
const COUNT_INTERVAL: Duration = millis(1);

/// The processes and their semaphore.
struct Contention<'a> {
    world: &'a World,
    options: HolderOptions,
    path: PathBuf,
    /// A bit for each process that relies on a permit.
    inside: &'static AtomicU64,
    processes: Vec<HolderProcess>,
}

pub(super) fn watched(run: &Run) -> Outcome {
    let world = World::new();
    let node = world.node("node");
    kill_holders(run, &world, HolderOptions::watched(TTL_LONG, &[&node]))
}

pub(super) fn expired(run: &Run) -> Outcome {
    let no_nodes: [&Node; 0] = [];
    let options = HolderOptions::watched(TTL, &no_nodes);
    kill_holders(run, &World::new(), options)
}

/// Kills a holder in each interval, and starts another process in its place.
fn kill_holders(run: &Run, world: &World, options: HolderOptions) -> Outcome {
    let path = world.recording.directory().join("inside");
    let is_watched = !options.nodes.addresses.is_empty();
    let mut contention = Contention {
        world,
        options,
        inside: shared_number(&path),
        path,
        processes: Vec::new(),
    };
    for bit in 0..PROCESSES {
        let process = contention.start(bit);
        contention.processes.push(process);
    }
    let mut outcome = Outcome::default();
    let mut rng = Rng::with_seed(run.seed);
    for _ in 0..run.count {
        let next = Instant::now() + INTERVAL;
        match contention.kill_one(&mut rng) {
            Some(latency) => {
                if !is_watched && Duration::from_nanos(latency) > BACK_MAX {
                    outcome.miss(format!("a permit was back after {latency} ns"));
                }
                outcome.latencies.push(latency);
            }
            None => outcome.miss(format!("{PERMITS} permits were not held in {LATEST:?}")),
        }
        outcome.runs += 1;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    contention.processes.drain(..).for_each(HolderProcess::end);
    let world_note = history::World {
        servers: 1,
        watched: is_watched,
        ..history::World::default()
    };
    let report = world.recording.check(run, "", false, world_note);
    outcome.report.merge(report);
    outcome
}

impl Contention<'_> {
    fn start(&self, bit: u32) -> HolderProcess {
        let name = format!("permits{}", self.world.next_number());
        let permits = PermitsConfig {
            permits: PERMITS,
            bit,
            inside: self.path.clone(),
        };
        let config = HolderConfig {
            workload: Workload::Permits(permits),
            ..self
                .options
                .config(self.world, &name, KeepConfig::default())
        };
        HolderProcess::start(&self.world.recording.journal, &config)
    }

    /// Kills a process that has a permit. Returns the time until all permits are held again, which those that live can
    /// only do when its permit is back.
    fn kill_one(&mut self, rng: &mut Rng) -> Option<Nanos> {
        self.until_all_held()?;
        let (killed, since) = loop {
            let earlier = self.inside.load(Ordering::SeqCst);
            thread::sleep(AGE);
            let bit = rng.u32(..PROCESSES);
            if earlier & (1 << bit) == 0 {
                continue;
            }
            let process = &mut self.processes[bit as usize];
            // Nobody else may count the dead process.
            process.helper.stop();
            let inside = self.inside.fetch_and(!(1 << bit), Ordering::SeqCst);
            if inside & (1 << bit) > 0 {
                let since = clock::now();
                process.kill();
                break (bit, since);
            }
            process.helper.resume();
        };
        let held = self.until_all_held();
        self.processes[killed as usize] = self.start(killed);
        Some(held?.saturating_sub(since))
    }

    /// Waits until as many processes as there are permits rely on one. Returns when they did.
    fn until_all_held(&self) -> Option<Nanos> {
        let start = Instant::now();
        while start.elapsed() < LATEST {
            if self.inside.load(Ordering::SeqCst).count_ones() == PERMITS {
                return Some(clock::now());
            }
            thread::sleep(COUNT_INTERVAL);
        }
        None
    }
}
