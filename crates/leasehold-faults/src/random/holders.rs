//! A holder process, those that replace it, and their faults.

use std::time::Duration;

use super::plan::{ELECTION, NAMES};
use super::{Store, World};
use crate::history::Fault;
use crate::holder::{CandidateConfig, CycleConfig, ElectionsConfig, HolderConfig, Nodes, Workload};
use crate::holder_process::HolderProcess;

/// More than the processes of a part of a soak. Each has a name of its own.
const PROCESSES_MAX: u64 = 1_000;

/// Injects the faults of a holder's plan into its process, which rested or is started, and then ends the last one, or lets
/// it rest and returns it. There is always one that lives.
pub(super) fn run<S: Store>(
    world: &World<S>,
    number: usize,
    resting: Option<HolderProcess>,
) -> Option<HolderProcess> {
    let plan = &world.plan.holders[number];
    let mut incarnation = world.part * PROCESSES_MAX;
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
            workload: workload(world, number, incarnation),
        };
        HolderProcess::start(&world.recording.journal, &config)
    };
    let mut process = resting
        .inspect(HolderProcess::work)
        .unwrap_or_else(&mut start);
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
    if process.has_failed() {
        return None;
    }
    if world.rests {
        return process.rest().then_some(process);
    }
    process.end();
    None
}

fn workload<S>(world: &World<S>, number: usize, incarnation: u64) -> Workload {
    let plan = &world.plan.holders[number];
    let seed = plan.seed ^ incarnation;
    if plan.campaigns {
        return Workload::Elections(ElectionsConfig {
            names: vec![ELECTION.to_owned()],
            replicated: false,
            candidate: Some(CandidateConfig {
                fence: world.fence,
                seed,
            }),
        });
    }
    Workload::Cycle(CycleConfig {
        names: NAMES.map(str::to_owned).to_vec(),
        fence: world.fence,
        seed,
        impatient: plan.impatient,
        tasks: plan.tasks,
        idle_ms: plan.idle_ms,
        // Many masters refuse them.
        shares_and_jobs: world.plan.servers == 1,
    })
}
