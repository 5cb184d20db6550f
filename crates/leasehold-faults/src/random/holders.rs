//! A holder process, those that replace it, and their faults.

use std::time::Duration;

use super::World;
use super::plan::{HolderPlan, NAMES};
use crate::history::Fault;
use crate::holder::{CycleConfig, HolderConfig, Nodes, Workload};
use crate::holder_process::HolderProcess;

/// A slot for a holder, which always has a live process.
struct HolderSlot<'a> {
    world: &'a World,
    plan: &'a HolderPlan,
    number: usize,
    incarnation: u64,
}

/// Injects the faults of a holder's plan, and then ends its last process.
pub(super) fn run(world: &World, number: usize) {
    let plan = &world.plan.holders[number];
    let mut slot = HolderSlot {
        world,
        plan,
        number,
        incarnation: 0,
    };
    let mut process = slot.start();
    for timed in &plan.faults {
        world.sleep_until(timed.at_ms);
        slot.replace_ended(&mut process);
        match timed.fault {
            Fault::KillHolder => {
                process.kill();
                process = slot.start();
            }
            _ => process.pause(Duration::from_millis(timed.length_ms)),
        }
    }
    world.sleep_until(world.plan.duration_ms);
    slot.replace_ended(&mut process);
    process.end();
}

impl HolderSlot<'_> {
    fn start(&mut self) -> HolderProcess {
        self.incarnation += 1;
        let (world, plan) = (self.world, self.plan);
        let config = HolderConfig {
            process: format!("{}-{}", self.number, self.incarnation),
            directory: world.recording.directory(),
            url: world.servers.url(self.number),
            ttl_ms: plan.ttl_ms,
            threads: plan.threads,
            handoff: plan.handoff,
            nodes: Nodes::default(),
            workload: Workload::Cycle(CycleConfig {
                names: NAMES.map(str::to_owned).to_vec(),
                fence: world.fence,
                seed: plan.seed ^ self.incarnation,
                impatient: plan.impatient,
                tasks: plan.tasks,
                // Many masters refuse them.
                shares: world.plan.servers == 1,
            }),
        };
        HolderProcess::start(&world.recording.journal, &config)
    }

    /// Replaces a process that has ended by itself, which is a violation.
    fn replace_ended(&mut self, process: &mut HolderProcess) {
        if process.has_failed() {
            *process = self.start();
        }
    }
}
