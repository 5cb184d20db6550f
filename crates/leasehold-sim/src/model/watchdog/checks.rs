//! What must be true of actions and of states.

use std::time::Duration;

use leasehold_core::watchdog::Liveness;

use super::Watchdog;
use super::rule::TICK;
use super::setup::{DeathProof, MAX_PAUSE};
use super::state::{Kind, NOBODY, NODES, Phase, RUNS, State, UNLIMITED};
use super::steps::Milestone;

/// What a step has broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Violated {
    /// A lease of a living client was released by a node.
    Living = 1,
    /// An action touched another's lease.
    Foreign = 2,
    /// An action made a lease hold the lock again.
    Revived = 4,
    /// A lease was renewed that was not to be any more.
    Longer = 8,
    /// A lease of the dead was not released at once.
    Stuck = 16,
}

impl Watchdog {
    /// Looks at what an action has done.
    pub(super) fn check_action(&self, before: &State, after: &mut State, of: u8, kind: Kind) {
        let run = before.run_of(of);
        let lives = before.is_living(run);
        let same = before.holder == after.holder && before.remaining == after.remaining;
        if same {
            return;
        }
        if before.holder == NOBODY {
            after.violated |= Violated::Revived as u8;
        } else if before.holder != of {
            after.violated |= Violated::Foreign as u8;
        }
        match kind {
            Kind::Release if before.holder == of && lives => {
                after.violated |= Violated::Living as u8
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

    /// Whether two rely on the lock.
    pub(super) fn is_shared(&self, state: &State) -> bool {
        let holds = state.main && state.phase == Phase::Holding;
        let relies = self.setup.rules.skips_check || self.setup.is_relied_on(state.age);
        holds && relies && state.rival > 0
    }

    /// Whether a lease has ended that a node in time could have kept.
    pub(super) fn is_dropped(&self, state: &State) -> bool {
        let held = state.phase == Phase::Holding && state.max_hold > 0;
        if !held || state.holder == state.current() {
            return false;
        }
        let kept = state.timely & state.watched & state.healthy;
        let in_time = |node: usize| kept & 1 << node != 0 && state.silent[node] < MAX_PAUSE;
        state.is_living(state.run.into()) && self.nodes().any(in_time)
    }

    /// A node has heard a message, and has been told to look after the current lease, or not to, or neither.
    pub(super) fn observe_message(&self, state: &mut State, node: usize, watched: Option<bool>) {
        let bit = 1 << node;
        let held = state.phase == Phase::Holding && state.holder == state.current();
        let well = held && state.remaining + self.setup.interval >= self.setup.ttl;
        match well || self.setup.rules.claims_health {
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

    /// Whether a node says that a lease is kept for longer than it is.
    pub(super) fn is_promised_falsely(&self, state: &State) -> bool {
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

    /// For how many ticks at most a lease holds the lock that nobody wants, after the last message.
    pub(super) fn longest_unwanted(&self) -> u8 {
        MAX_PAUSE + self.setup.ttl
    }

    /// Whether a lease holds the lock for too long that nobody wants.
    pub(super) fn is_stuck(&self, state: &State) -> bool {
        state.unwanted > self.longest_unwanted()
    }

    /// Whether the lock is held by a lease of the program's that nobody wants.
    fn is_unwanted(&self, state: &State) -> bool {
        state.holder < NOBODY
            && !(state.is_wanted(state.holder) && state.is_living(state.run.into()))
    }

    /// Leaves out what no step and no property can use any more.
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
                if monitor.condition(now) == Liveness::Abandoned && !monitor.is_empty() {
                    self.reach(Milestone::Abandoned);
                }
                if monitor.is_over(now) {
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
        if self.setup.rules.death_proof == DeathProof::AllProcesses && state.acquired == 0 {
            state.unwanted = 0;
        }
    }
}
