//! The steps of a state.

use std::fmt;

use super::rule::TICK;
use super::setup::MAX_PAUSE;
use super::state::{FREE, HOST, Kind, Link, Phase, RUNS, State, UNLIMITED};
use super::{Property, Watchdog};

/// The callback for a step and the state behind it.
pub(super) type Take<'a> = &'a mut dyn FnMut(&dyn fmt::Display, State);

/// A milestone that a model must reach: otherwise it would prove nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Milestone {
    /// A holder whose deadline had passed received the renewal of its lease.
    WentOn = 1,
    /// A node has released a dead client's lease.
    Released = 2,
    /// A client was silent for too long.
    Abandoned = 4,
    /// A late action had no effect.
    LateWithoutEffect = 8,
    /// A node kept a lease while the other one was slow.
    KeptByOne = 16,
    /// A lease was kept for the child of a dead program.
    KeptForChild = 32,
}

impl Watchdog {
    pub(super) fn all_steps(&self, state: &State, take: Take<'_>) {
        self.client(state, take);
        self.rival(state, take);
        for node in self.nodes() {
            self.send_messages(state, node, take);
            for run in 0..RUNS {
                self.read_connections(state, run, node, take);
            }
            self.act(state, node, take);
        }
        self.late(state, take);
        if !self.nodes().any(|node| self.is_busy(state, node)) {
            take(&"a tick", self.tick(state));
        }
    }

    /// Whether a timely node must act before the tick is over.
    fn is_busy(&self, state: &State, node: usize) -> bool {
        let mut in_flight = state.in_flight.iter().flatten();
        let waits = in_flight.any(|flight| flight.is_sent_by(node));
        let acts = |run| {
            let monitor = self.monitor(state, run, node);
            monitor.is_some_and(|monitor| {
                self.detects_death(state, run, node, &monitor) || self.is_due(&monitor)
            })
        };
        let reads = |run| {
            let Link {
                messages, closing, ..
            } = self.link(state, run, node);
            !messages.is_empty() || closing.is_some_and(|messages| !messages.is_empty())
        };
        state.is_timely(node) && (waits || (0..RUNS).any(|run| reads(run) || acts(run)))
    }

    /// Time passes.
    fn tick(&self, state: &State) -> State {
        let mut next = *state;
        self.check_release(&mut next);
        next.remaining = next.remaining.saturating_sub(1);
        if next.remaining == 0 {
            next.holder = FREE;
        }
        next.rival = next.rival.saturating_sub(1);
        if next.phase != Phase::Idle {
            next.age = self.setup.ttl.min(next.age + 1);
        }
        for silent in &mut next.silent {
            *silent = MAX_PAUSE.min(*silent + 1);
        }
        if next.max_hold != UNLIMITED {
            next.max_hold = next.max_hold.saturating_sub(1);
        }
        for flight in &mut next.in_flight {
            // Only the time of a renewal is used later.
            if let Some(flight) = flight
                && flight.kind == Kind::Renew
                && flight.renewed != Some(false)
            {
                flight.age = self.setup.ttl.min(flight.age + 1);
            }
        }
        for run in 0..RUNS {
            for node in self.nodes() {
                if let Some(mut monitor) = self.monitor(&next, run, node) {
                    monitor.back(TICK, self.setup.node_now());
                    self.put_monitor(&mut next, run, node, Some(monitor));
                }
                let mut link = self.link(&next, run, node);
                link.session.back(TICK);
                self.put_link(&mut next, run, node, link);
            }
        }
        next.unwanted = (next.unwanted + 1).min(self.longest_unwanted() + 1);
        next
    }

    /// A timely node on the host has released the lease of a dead client before the tick is over.
    fn check_release(&self, state: &mut State) {
        let failed = state.failed_actions < self.setup.failed_actions;
        if state.holder >= FREE || !state.is_timely(HOST) || failed {
            return;
        }
        let run = state.run_of(state.holder);
        let number = self.setup.number(state, state.holder);
        let monitor = self.monitor(state, run, HOST);
        let known = monitor.is_some_and(|monitor| monitor.lease(number).is_some());
        if !state.is_living(run) && known {
            state.violate(Property::Free);
        }
    }

    pub(super) fn reach(&self, milestone: Milestone) {
        let reached = self.milestones.get() | milestone as u32;
        self.milestones.set(reached);
    }
}
