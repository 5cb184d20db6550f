//! A holder process, those that replace it, and their faults.

use std::time::Duration;

use super::plan::NAMES;
use super::{Store, World};
use crate::history::Fault;
use crate::holder::{CycleConfig, HolderConfig, Nodes, Workload};
use crate::holder_process::HolderProcess;

/// Injects the faults of a holder's plan, and then ends its last process. There is always one that lives.
pub(super) fn run<S: Store>(world: &World<S>, number: usize) {
    let plan = &world.plan.holders[number];
    let mut incarnation = 0_u64;
    let mut start = || {
        incarnation += 1;
        let config = HolderConfig {
            process: format!("{number}-{incarnation}"),
            directory: world.recording.directory(),
            url: world.store.url(number),
            ttl_ms: plan.ttl_ms,
            threads: plan.threads,
            handoff: plan.handoff,
            clock: S::clock(number),
            nodes: Nodes::default(),
            workload: Workload::Cycle(CycleConfig {
                names: NAMES.map(str::to_owned).to_vec(),
                fence: world.fence,
                seed: plan.seed ^ incarnation,
                impatient: plan.impatient,
                tasks: plan.tasks,
                idle_ms: plan.idle_ms,
                // Many masters refuse them.
                shares_and_jobs: world.plan.servers == 1,
            }),
        };
        HolderProcess::start(&world.recording.journal, &config)
    };
    let mut process = start();
    for timed in &plan.faults {
        world.sleep_until(timed.at_ms);
        // A process that has ended by itself is a violation.
        if process.has_failed() {
            process = start();
        }
        match timed.fault {
            Fault::KillHolder => {
                process.kill();
                process = start();
            }
            _ => process.pause(Duration::from_millis(timed.length_ms)),
        }
    }
    world.sleep_until(world.plan.duration_ms);
    if !process.has_failed() {
        process.end();
    }
}
