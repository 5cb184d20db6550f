//! The rules that ship.

use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_core::MinHold;
use leasehold_core::time::{self, StoreTime, Ttl};
use leasehold_core::{Acquire, Environment, Holder, Op, Outcome, Rows, Whom};

use super::setup::{Mutation, Record};
use super::state::{CLIENTS, Hold, Phase, State};
use crate::model::core::{self, NOW, attempt, lease};

/// When the waiters joined the queue, which is kept because they repeat their requests.
const BEFORE: StoreTime = StoreTime::from_micros(NOW.as_micros() - 1);

impl Record {
    fn ttl(&self) -> Ttl {
        Ttl::remainder(self.tick * u32::from(self.ttl))
    }

    pub(super) fn acquire(&self, at: usize) -> Op {
        Op::Acquire(Acquire {
            wait: true,
            ..Acquire::mutex(lease(at), self.ttl())
        })
    }

    pub(super) fn renew(&self, at: usize) -> Op {
        Op::renew(lease(at), self.ttl())
    }

    pub(super) fn enter(&self, at: usize) -> Op {
        Op::Renew {
            lease: lease(at),
            ttl: self.ttl(),
            count: Some(NonZeroU32::MIN.saturating_add(1)),
        }
    }

    /// A release with the rest of a minimum hold.
    pub(super) fn release(&self, at: usize, rest: u8) -> Op {
        Op::Release {
            lease: lease(at),
            rest: (rest > 0).then(|| Ttl::remainder(self.tick * u32::from(rest))),
            note: None,
        }
    }

    /// The store processes a request of a client.
    pub(super) fn apply(&self, state: &mut State, at: usize, op: &Op) -> Outcome {
        let mut op = op.clone();
        match (self.mutation, &mut op) {
            (Some(Mutation::RenewalLengthens), Op::Renew { count: None, .. })
                if state.hold == Hold::Min(at) =>
            {
                state.remaining = state.remaining.max(self.ttl);
                return Outcome::Kept;
            }
            (Some(Mutation::EnterRevives), Op::Renew { count: Some(_), .. })
                if state.hold == Hold::Min(at) =>
            {
                state.hold = Hold::Lease(at);
                return Outcome::Kept;
            }
            (Some(Mutation::FreesEarly), Op::Release { .. }) => op = self.release(at, 0),
            (
                Some(Mutation::ReleasesAny),
                Op::Release {
                    lease: released,
                    rest,
                    ..
                },
            ) if rest.is_some() => {
                if let Hold::Lease(holder) = state.hold {
                    *released = lease(holder);
                }
            }
            _ => {}
        }
        let before = state.hold;
        let outcome = self.run(state, &op);
        if outcome == Outcome::Released {
            let client = &mut state.clients[at];
            let begins = client.phase != Phase::CutOff;
            state.limit = if begins { state.remaining } else { 0 };
            if before == Hold::Lease(at) {
                client.ended = true;
                state.reserved = if begins {
                    self.min_hold - client.since
                } else {
                    0
                };
            } else {
                state.foreign = true;
            }
        }
        outcome
    }

    /// An operator revokes the lease.
    pub(super) fn revoke(&self, state: &mut State) {
        let before = state.hold;
        self.run(state, &Op::Revoke(Whom::All));
        (state.reserved, state.limit) = (0, 0);
        if let Hold::Lease(at) = before {
            state.clients[at].revoke();
        }
    }

    fn run(&self, state: &mut State, op: &Op) -> Outcome {
        let mut record = self.record(state);
        let outcome = core::apply(&mut record, op, NOW);
        let before = state.hold;
        let held = core::holder(&record, NOW);
        state.hold = match held {
            None => Hold::None,
            Some((holder, _)) if holder.is_reserved => Hold::Min(attempt(holder.lease).into()),
            Some((holder, _)) => Hold::Lease(attempt(holder.lease).into()),
        };
        let time_left = held.map_or(Duration::ZERO, |(_, time_left)| time_left);
        state.remaining = core::ticks(time_left, self.tick);
        let environment = Environment::at(NOW);
        let waiters = record.waiters(&environment);
        state.wait(waiters.map(|waiter| attempt(waiter.lease).into()));
        if let Hold::Lease(at) = state.hold
            && before != state.hold
        {
            state.clients[at].since = 0;
        }
        outcome
    }

    fn record(&self, state: &State) -> Rows {
        let holder = match state.hold {
            // One that has ended, so that the waiters join the queue.
            Hold::None => CLIENTS,
            Hold::Lease(at) | Hold::Min(at) => at,
        };
        let end = NOW.after_span(self.tick * u32::from(state.remaining));
        let holder = Holder {
            is_reserved: matches!(state.hold, Hold::Min(_)),
            ..core::held_by(lease(holder), end)
        };
        let mut record = Rows::held(holder, None);
        for at in state.waiters() {
            core::apply(&mut record, &self.acquire(at), BEFORE);
        }
        record
    }

    /// For how many ticks a lease can be relied on whose request was sent `age` ticks ago.
    pub(super) fn reliable_for(&self, age: u8) -> u8 {
        let (sent, now) = core::instants(self.tick * u32::from(age));
        core::ticks(now.until(time::deadline(sent, self.ttl())), self.tick)
    }

    /// The rest of a minimum hold that was begun `age` ticks ago.
    pub(super) fn rest(&self, age: u8) -> u8 {
        if self.mutation == Some(Mutation::WithoutDrift) {
            return self.min_hold.saturating_sub(age);
        }
        let (begun, now) = core::instants(self.tick * u32::from(age));
        let min_hold = MinHold::begin(self.tick * u32::from(self.min_hold), begun);
        let rest = min_hold.remaining(now);
        rest.map_or(0, |rest| core::ticks(rest.as_duration(), self.tick))
    }

    /// The age of a lease that makes no further difference: its deadline has passed, and its minimum hold.
    pub(super) fn age_max(&self) -> u8 {
        let mut ages = self.ttl.max(self.min_hold)..;
        ages.find(|age| self.rest(*age) == 0).unwrap_or(u8::MAX)
    }
}
