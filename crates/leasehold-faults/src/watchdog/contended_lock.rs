//! A lock that a process of its own keeps, and a waiter for it.

use std::time::Duration;

use leasehold_testkit::found_within;

use super::world::{Node, TIMEOUT, Waiter, World, millis};
use crate::clock::{self, Nanos};
use crate::history::{Event, EventReader, HoldEvent, LeaseState};
use crate::holder::{HolderConfig, KeepConfig, Nodes, Workload};
use crate::holder_process::HolderProcess;
use crate::scenario::{Outcome, Run};

/// The ttl of holders that are killed: a grant long before its end is due to the watchdog.
pub(super) const TTL_LONG: Duration = millis(30_000);

/// A later grant is too late, on however busy a machine.
pub(super) const LATEST: Duration = millis(10_000);

/// The holders of a scenario.
#[derive(Clone, Debug, Default)]
pub(super) struct HolderOptions {
    pub(super) ttl: Duration,
    pub(super) nodes: Nodes,
    /// Whether lost locks are acquired again.
    pub(super) again: bool,
}

impl HolderOptions {
    /// Holders that are watched by nodes on this machine.
    pub(super) fn watched(ttl: Duration, nodes: &[&Node]) -> Self {
        Self {
            ttl,
            nodes: Nodes {
                addresses: nodes.iter().map(|node| node.address()).collect(),
                tls: None,
            },
            again: false,
        }
    }

    pub(super) fn config(&self, world: &World, process: &str, workload: Workload) -> HolderConfig {
        HolderConfig {
            process: process.to_owned(),
            directory: world.recording.directory(),
            url: world.server.url(),
            ttl_ms: u64::try_from(self.ttl.as_millis()).unwrap(),
            threads: 2,
            handoff: true,
            clock: None,
            nodes: self.nodes.clone(),
            workload,
        }
    }

    /// One lock, named after the process.
    fn one_lock(&self, world: &World, process: &str) -> HolderConfig {
        let keep = KeepConfig {
            clients: 1,
            locks: 1,
            again: self.again,
            quiet: false,
        };
        self.config(world, process, Workload::Keep(keep))
    }
}

/// A process that keeps a lock, and a waiter for it.
pub(super) struct ContendedLock {
    pub(super) process: HolderProcess,
    pub(super) waiter: Waiter,
    pub(super) events: EventReader,
    /// The loss of the lease that the holder knew before it was stopped, and when it knew.
    lost: Option<(LeaseState, Nanos)>,
}

impl ContendedLock {
    /// Starts holders side by side, and a waiter for each lock when it is held.
    pub(super) fn start_many(world: &World, count: usize, options: &HolderOptions) -> Vec<Self> {
        let starting: Vec<_> = (0..count)
            .map(|_| {
                let name = format!("lock{}", world.next_number());
                let config = options.one_lock(world, &name);
                let events = EventReader::open(&config.history());
                (
                    HolderProcess::start(&world.recording.journal, &config),
                    events,
                )
            })
            .collect();
        let waiting = starting.into_iter().map(|(process, mut events)| {
            until(&mut events, is_grant);
            let waiter = world.waiter(&lock_of(&process.name));
            Self {
                process,
                waiter,
                events,
                lost: None,
            }
        });
        waiting.collect()
    }

    /// The name of the lock.
    pub(super) fn name(&self) -> String {
        lock_of(&self.process.name)
    }

    /// Executes the program anew in the process, which then keeps another lock.
    pub(super) fn exec(&mut self, world: &World, options: &HolderOptions) {
        let name = format!("{}-next", self.process.name);
        let config = options.one_lock(world, &name);
        self.events = EventReader::open(&config.history());
        self.process.exec(&config);
        until(&mut self.events, is_grant);
    }

    /// Stops the holder. Its events so far are not read again; of them, a loss is kept.
    pub(super) fn stop(&mut self) {
        self.process.stop();
        while let Some((at, event)) = self.events.next() {
            if let Event::Hold(_, HoldEvent::Observed { state, .. }) = event
                && matches!(state, LeaseState::Lost(_))
            {
                self.lost = Some((state, at));
            }
        }
    }

    /// Resumes the holder, and waits until it knows the state of its lease. Returns all states on the way, and when it
    /// knew.
    pub(super) fn resume(&mut self) -> (Vec<LeaseState>, Nanos) {
        self.process.resume();
        if let Some((state, at)) = self.lost.take() {
            return (vec![state], at);
        }
        let mut states = Vec::new();
        let at = until(&mut self.events, |event| {
            let HoldEvent::Observed { state, .. } = event else {
                return false;
            };
            states.push(state.clone());
            matches!(state, LeaseState::Held(_) | LeaseState::Lost(_))
        });
        (states, at)
    }

    /// Requests the release of the lock. Returns when it began, and whether the lock was held until then.
    pub(super) fn release(&mut self) -> (Nanos, bool) {
        self.process.helper.send("release");
        let at = until(&mut self.events, |event| *event == HoldEvent::Releasing);
        let mut held = false;
        until(&mut self.events, |event| {
            let HoldEvent::Released { outcome } = event else {
                return false;
            };
            held = outcome == "ok";
            true
        });
        (at, held)
    }

    /// Adds the time from an instant until the waiter is granted the lock.
    pub(super) fn expect_grant(&self, since: Nanos, timeout: Duration, outcome: &mut Outcome) {
        match self.waiter.granted_within(timeout) {
            Some(at) => outcome.latencies.push(at.saturating_sub(since)),
            None => outcome.miss(format!(
                "{} was not granted to its waiter in {timeout:?}",
                self.name()
            )),
        }
    }

    /// Kills the holder, and expects the grant to the waiter.
    pub(super) fn kill(&mut self, timeout: Duration, outcome: &mut Outcome) {
        let since = clock::now();
        self.process.kill();
        self.expect_grant(since, timeout, outcome);
    }
}

/// Contended locks that run at the same time, and their world.
pub(super) struct LockGroup<'a> {
    pub(super) world: &'a World,
    pub(super) options: &'a HolderOptions,
    pub(super) node: &'a Node,
    pub(super) outcome: &'a mut Outcome,
    pub(super) locks: Vec<ContendedLock>,
}

/// Starts so many locks in all, at most `group_max` at a time, passes each group to `run_group`, and checks the
/// history. One node watches their holders.
pub(super) fn run_in_groups(
    run: &Run,
    ttl: Duration,
    group_max: usize,
    mut run_group: impl FnMut(LockGroup<'_>),
) -> Outcome {
    let world = World::new();
    let node = world.node("node");
    let options = HolderOptions::watched(ttl, &[&node]);
    let mut outcome = Outcome::default();
    while outcome.runs < run.count {
        let count = group_max.min(run.count - outcome.runs);
        run_group(LockGroup {
            world: &world,
            options: &options,
            node: &node,
            outcome: &mut outcome,
            locks: ContendedLock::start_many(&world, count, &options),
        });
        outcome.runs += count;
    }
    world.check(run, true, &mut outcome);
    outcome
}

/// The name of the only lock of a process.
pub(super) fn lock_of(process: &str) -> String {
    format!("{process}-0-0")
}

fn is_grant(event: &HoldEvent) -> bool {
    matches!(event, HoldEvent::Granted { .. })
}

/// Reads the events of a holder up to a certain one. Returns its instant.
fn until(events: &mut EventReader, mut wanted: impl FnMut(&HoldEvent) -> bool) -> Nanos {
    let found = found_within(TIMEOUT, || {
        while let Some((at, event)) = events.next() {
            match event {
                Event::Hold(_, event) if wanted(&event) => return Some(at),
                _ => {}
            }
        }
        None
    });
    found.expect("a holder does what it is to do")
}
