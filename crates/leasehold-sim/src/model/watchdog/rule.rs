//! The rule that ships, and mutations around it.

use std::time::Duration;

use leasehold_core::id::{ClientId, LeaseId};
use leasehold_core::time::{self, Instant, Ttl};
use leasehold_core::watchdog::{Evidence, Terms};
use leasehold_core::{Acquire, Op, Outcome};

use super::Monitor;
use super::setup::{DeathProof, INTERVAL, MAX_PAUSE, ReleaseCondition, Renewal, Restart, Setup};
use super::state::{FREE, HOST, Kind, RIVAL, State, UNLIMITED};
use crate::model::core::{self, NOW};

/// A tick.
pub(super) const TICK: Duration = Duration::from_secs(1);

impl Setup {
    pub(super) fn ttl(self) -> Ttl {
        Ttl::remainder(TICK * u32::from(self.ttl))
    }

    /// The instant of a node's clock. Earlier ones than the first make no difference, except that no node forgets a
    /// client because its leases have expired.
    pub(super) fn node_now(self) -> Instant {
        let ticks = u32::from(self.ttl.max(MAX_PAUSE));
        Instant::default().after(TICK * ticks)
    }

    /// The instant of a client's clock, which stores only the time of its last message.
    pub(super) fn client_now() -> Instant {
        Instant::default().after(TICK)
    }

    /// The registered terms of a lease that may be renewed for so many ticks.
    pub(super) fn terms(self, max_hold: u8, now: Instant) -> Terms {
        let keep_until = match max_hold {
            UNLIMITED => Terms::NO_END,
            ticks => now.after(TICK * u32::from(ticks)),
        };
        let (ttl, interval) = (self.ttl(), TICK * u32::from(INTERVAL));
        let mut terms = Terms::new(ttl, interval, ttl.as_duration() / 30, keep_until);
        if self.renews_late {
            terms.silence_timeout = ttl.as_duration();
        }
        terms
    }

    /// Whether a lease survives a failed action.
    pub(super) fn survives_failed_action(self) -> bool {
        let silence = self.terms(UNLIMITED, self.node_now()).silence_timeout;
        INTERVAL + core::ticks(silence, TICK) + 1 < self.ttl
    }

    pub(super) fn monitor(self, node: usize) -> Monitor {
        let evidence = match self.death_proof {
            DeathProof::Connection => Evidence::Processes,
            _ if node == HOST => Evidence::Processes,
            _ => Evidence::Connection,
        };
        let max_pause = self.max_pause;
        let max_pause = max_pause.map_or(Duration::MAX, |ticks| TICK * u32::from(ticks));
        Monitor::new(evidence, max_pause, self.node_now())
    }

    /// Whether a lease can be relied on if its last confirmed request was sent so many ticks ago.
    pub(super) fn is_relied_on(self, age: u8) -> bool {
        let now = Instant::default().after(TICK * u32::from(self.ttl) * 2);
        now < time::deadline(now.before(TICK * u32::from(age)), self.ttl())
    }

    /// The number of an acquisition among those of its client.
    pub(super) fn number(self, state: &State, acquisition: u8) -> u64 {
        let run = state.runs[usize::from(acquisition)];
        let before = &state.runs[..usize::from(acquisition)];
        let alike = |other: &&u8| **other == run || self.restart == Restart::SameClient;
        1 + before.iter().filter(alike).count() as u64
    }

    /// The acquisition of a run with this number.
    pub(super) fn numbered(self, state: &State, run: usize, number: u64) -> Option<u8> {
        let mut of_run = (0..state.acquired).filter(|at| state.run_of(*at) == run);
        of_run.find(|acquisition| self.number(state, *acquisition) == number)
    }

    fn lease(self, state: &State, holder: u8) -> LeaseId {
        let (run, number) = match self.restart {
            _ if holder == RIVAL => (9, 1),
            Restart::NewClient => (state.runs[usize::from(holder)], self.number(state, holder)),
            Restart::SameClient | Restart::SameLease => (0, self.number(state, holder)),
        };
        let client = ClientId::from_random([run; 16]);
        LeaseId { client, number }
    }

    /// The lease that holds the lock.
    fn held(self, state: &State) -> Option<LeaseId> {
        (state.holder != FREE).then(|| self.lease(state, state.holder))
    }

    /// Applies an operation.
    fn apply(self, state: &mut State, op: &Op, of: u8) -> Outcome {
        let before = self.held(state);
        let end = NOW.after_span(TICK * u32::from(state.remaining));
        let mut record = core::record(before, end);
        let outcome = core::apply(&mut record, op, NOW);
        match core::holder(&record, NOW) {
            None => (state.holder, state.remaining) = (FREE, 0),
            Some((after, time_left)) => {
                if before != Some(after.lease) {
                    state.holder = of;
                }
                state.remaining = core::ticks(time_left, TICK);
            }
        }
        outcome
    }

    /// Acquires the lock. Returns whether it is granted.
    pub(super) fn acquire(self, state: &mut State, of: u8) -> bool {
        let op = Op::Acquire(Acquire::mutex(self.lease(state, of), self.ttl()));
        let granted = matches!(self.apply(state, &op, of), Outcome::Granted { .. });
        if granted {
            // A reused id is granted the lock that it holds already.
            state.holder = of;
        }
        granted
    }

    /// Renews a lease. Returns whether it holds the lock.
    pub(super) fn renew(self, state: &mut State, of: u8) -> bool {
        let op = Op::renew(self.lease(state, of), self.ttl());
        self.apply(state, &op, of) == Outcome::Kept
    }

    pub(super) fn release(self, state: &mut State, of: u8) {
        self.apply(state, &Op::release(self.lease(state, of)), of);
    }

    /// Applies an action of a node, by the rule or a mutation. Returns whether the lease is renewed.
    pub(super) fn apply_action(self, state: &mut State, of: u8, kind: Kind) -> bool {
        let own = self.lease(state, of);
        let held = self.held(state);
        match kind {
            Kind::Renew => {
                let lease = match (self.renewal, held) {
                    (Renewal::Creates | Renewal::Anything, None) => {
                        return self.acquire(state, of);
                    }
                    (Renewal::Anything, Some(held)) => held,
                    _ => own,
                };
                self.apply(state, &Op::renew(lease, self.ttl()), of) == Outcome::Kept
            }
            Kind::Release => {
                let lease = match (self.release_condition, held) {
                    (ReleaseCondition::Client, Some(held)) if held.client == own.client => held,
                    (ReleaseCondition::Nothing, Some(held)) => held,
                    _ => own,
                };
                self.apply(state, &Op::release(lease), of);
                false
            }
        }
    }
}
