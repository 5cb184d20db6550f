//! The checks of actions and states.

use std::time::Duration;

use leasehold_core::watchdog::Liveness;

use super::Watchdog;
use super::rule::TICK;
use super::setup::{DeathProof, INTERVAL, MAX_PAUSE};
use super::state::{FREE, Kind, NODES, Phase, RUNS, State, UNLIMITED};
use super::steps::Milestone;

/// A violation by a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Violated {
    /// A lease of a living client was released by a node.
    Living = 1,
    /// An action changed another lease.
    Foreign = 2,
    /// An action made a lease hold the lock again.
    Revived = 4,
    /// A lease was renewed for longer than it may be.
    Longer = 8,
    /// A lease of a dead client was not released at once.
    Stuck = 16,
}

impl Watchdog {
    /// Checks the effect of an action.
    pub(super) fn check_action(&self, before: &State, after: &mut State, of: u8, kind: Kind) {
        let run = before.run_of(of);
        let living = before.is_living(run);
        let same = before.holder == after.holder && before.remaining == after.remaining;
        if same {
            return;
        }
        if before.holder == FREE {
            after.violated |= Violated::Revived as u8;
        } else if before.holder != of {
            after.violated |= Violated::Foreign as u8;
        }
        match kind {
            Kind::Release if before.holder == of && living => {
                after.violated |= Violated::Living as u8;
            }
            Kind::Release => self.reach(Milestone::Released),
            Kind::Renew if before.is_wanted(of) && before.phase == Phase::Holding => {
                if !before.main {
                    self.reach(Milestone::KeptForChild);
                }
            }
            Kind::Renew => {}
        }
    }

    /// Whether both the client and the rival rely on the lock.
    pub(super) fn is_shared(&self, state: &State) -> bool {
        let holds = state.main && state.phase == Phase::Holding;
        let relies = self.setup.skips_check || self.setup.is_relied_on(state.age);
        holds && relies && state.rival > 0
    }

    /// Whether a lease has ended that a timely node could have kept.
    pub(super) fn is_dropped(&self, state: &State) -> bool {
        let held = state.phase == Phase::Holding && state.max_hold > 0;
        if !held || state.holder == state.current() {
            return false;
        }
        let kept = state.timely & state.watched & state.healthy;
        let in_time = |node: usize| kept & 1 << node != 0 && state.silent[node] < MAX_PAUSE;
        state.is_living(state.run.into()) && self.nodes().any(in_time)
    }

    /// Observes a message to a node, which registers the current lease, unregisters it, or does neither.
    pub(super) fn observe_message(&self, state: &mut State, node: usize, watched: Option<bool>) {
        let bit = 1 << node;
        let held = state.phase == Phase::Holding && state.holder == state.current();
        let healthy = held && state.remaining + INTERVAL >= self.setup.ttl;
        match healthy || self.setup.claims_health {
            true => state.healthy |= bit,
            false => state.healthy &= !bit,
        }
        match watched {
            Some(true) => state.watched |= bit,
            Some(false) => state.watched &= !bit,
            None => {}
        }
        state.silent[node] = 0;
    }

    /// Whether a node reports that a lease is kept for longer than it is.
    pub(super) fn is_misreported(&self, state: &State) -> bool {
        if !state.main || state.phase != Phase::Holding {
            return false;
        }
        let now = self.setup.node_now();
        let run = usize::from(state.run);
        let number = self.setup.number(state, state.current());
        let remaining = match state.holder == state.current() {
            true => TICK * u32::from(state.remaining),
            false => Duration::ZERO,
        };
        self.nodes().any(|node| {
            let monitor = self.monitor(state, run, node);
            let kept = monitor.and_then(|monitor| monitor.kept_until(number));
            kept.is_some_and(|kept| now.until(kept) > remaining)
        })
    }

    /// For how many ticks an unwanted lease holds the lock at most after the last message.
    pub(super) fn longest_unwanted(&self) -> u8 {
        MAX_PAUSE + self.setup.ttl
    }

    /// Whether an unwanted lease has held the lock for too long.
    pub(super) fn is_stuck(&self, state: &State) -> bool {
        state.unwanted > self.longest_unwanted()
    }

    /// Whether an unwanted lease of the program holds the lock.
    fn is_unwanted(&self, state: &State) -> bool {
        state.holder < FREE && !(state.is_wanted(state.holder) && state.is_living(state.run.into()))
    }

    /// Removes what no step and no property can use any more.
    pub(super) fn reduce(&self, state: &mut State) {
        let now = self.setup.node_now();
        if !self.is_unwanted(state) {
            state.unwanted = 0;
        }
        for run in 0..RUNS {
            for node in self.nodes() {
                let Some(monitor) = self.monitor(state, run, node) else {
                    continue;
                };
                if monitor.liveness(now) == Liveness::Abandoned && !monitor.is_empty() {
                    self.reach(Milestone::Abandoned);
                }
                if monitor.is_finished(now) {
                    self.put_monitor(state, run, node, None);
                }
            }
        }
        if state.phase != Phase::Holding {
            state.watched = 0;
        }
        for node in 0..NODES {
            if state.silent[node] >= MAX_PAUSE {
                state.watched &= !(1 << node);
            }
            if state.watched & 1 << node == 0 {
                state.healthy &= !(1 << node);
                state.silent[node] = MAX_PAUSE;
            }
        }
        if state.phase == Phase::Idle {
            (state.age, state.max_hold) = (0, UNLIMITED);
        }
        state.in_flight.sort_unstable();
        state.late.sort_unstable();
        if self.setup.death_proof == DeathProof::AllProcesses && state.acquired == 0 {
            state.unwanted = 0;
        }
    }
}
