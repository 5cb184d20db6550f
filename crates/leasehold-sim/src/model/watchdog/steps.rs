//! The steps of a state, and the checks of actions and states.

use std::time::Duration;

use super::rule::TICK;
use super::setup::{DeathProof, INTERVAL, MAX_PAUSE};
use super::state::{FREE, HOST, Kind, Link, NODES, Phase, RUNS, State, UNLIMITED};
use super::{Property, Take, Watchdog};

impl State {
    pub(super) fn violate(&mut self, property: Property) {
        self.violated |= property.bit();
    }
}

/// Sets or clears the bit of a node.
fn set(bits: &mut u8, node: usize, is_set: bool) {
    *bits = (*bits & !(1 << node)) | (u8::from(is_set) << node);
}

impl Watchdog {
    pub(super) fn all_steps(&self, state: &State, take: Take<'_, State>) {
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

    /// Checks the effect of an action.
    pub(super) fn check_action(&self, before: &State, after: &mut State, of: u8, kind: Kind) {
        if (before.holder, before.remaining) == (after.holder, after.remaining) {
            return;
        }
        if before.holder == FREE {
            after.violate(Property::Final);
        } else if before.holder != of {
            after.violate(Property::Own);
        }
        let is_release = kind == Kind::Release && before.holder == of;
        if is_release && before.is_living(before.run_of(of)) {
            after.violate(Property::Living);
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
        let held = state.phase == Phase::Holding && state.holder == state.current();
        let healthy = held && state.remaining + INTERVAL >= self.setup.ttl;
        let claims = self.setup.claims_health;
        set(&mut state.healthy, node, healthy || claims);
        if let Some(watched) = watched {
            set(&mut state.watched, node, watched);
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

    /// Removes what no step and no property can still use.
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
