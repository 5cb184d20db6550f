//! A checker of the replies and notices of a store.
//!
//! It shares no code with the rule, only the types of requests and replies. It knows of a lease what the
//! promises state: the lease begins with its grant, ends at its ttl, and may be renewed, released or
//! revoked before. A minimum hold begins with its release, and only time or a revocation ends it. Refused waiters are served in the order of their requests, by a notified grant.

mod hold;
mod promise;
mod queue;
mod tokens;

use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_core::{ClientId, Grant, LeaseId, Notice, Op, Outcome, StoreTime, Ttl};

use self::hold::{Hold, is_held_by};
pub use self::promise::{Promise, Violation};
use self::queue::{Queue, Waiter};

/// The longest acceptance ttl, in milliseconds.
const ACCEPTANCE_MS: u64 = 3_000;

/// One operation, and what the store did with it.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// The operation.
    pub op: &'a Op,
    /// The reply to it.
    pub reply: &'a Outcome,
    /// The notices that were sent to living waiters, in this order.
    pub notices: &'a [Notice],
    /// The store's time.
    pub now: StoreTime,
}

/// Checks the operations on one name in the order in which its store applied them.
#[derive(Clone, Debug)]
pub struct StoreChecker {
    hold: Option<Hold>,
    queue: Queue,
    last_token: u64,
    slack: u64,
}

impl StoreChecker {
    /// A checker of a store that rounds the ends of leases by up to `slack`.
    #[must_use]
    pub fn new(slack: Duration) -> Self {
        Self {
            hold: None,
            queue: Queue::default(),
            last_token: 0,
            slack: u64::try_from(slack.as_micros()).unwrap_or(u64::MAX),
        }
    }

    /// Checks one operation. `reaches` returns whether a client lives, so that the store can notify it.
    ///
    /// # Errors
    ///
    /// The promise that was violated.
    pub fn observe(
        &mut self,
        observation: Observation<'_>,
        reaches: impl Fn(ClientId) -> bool,
    ) -> Result<(), Violation> {
        let before = self.clone();
        self.check(observation, &reaches)
            .map_err(|promise| Violation {
                promise,
                what: format!("{observation:?}, {before:?}"),
            })
    }

    fn check(
        &mut self,
        Observation {
            op,
            reply,
            notices,
            now,
        }: Observation<'_>,
        reaches: &impl Fn(ClientId) -> bool,
    ) -> Result<(), Promise> {
        let now = now.as_micros();
        self.queue.expire(now);
        self.expire(now);
        // An acquire first lets the waiters before it hold a free lock. Every other operation may free the
        // lock for the next waiter.
        if matches!(op, Op::Acquire { .. }) {
            self.handle_notices(notices, None, now, reaches)?;
            self.handle_reply(op, reply, now, reaches)?;
        } else {
            self.handle_reply(op, reply, now, reaches)?;
            let notices = Self::check_revocation(reply, notices, reaches)?;
            let next = match (op, reply) {
                (
                    Op::Release {
                        rest: Some(rest), ..
                    },
                    Outcome::Released,
                ) => self.next_notice(*rest, reaches),
                _ => None,
            };
            self.handle_notices(notices, next, now, reaches)?;
        }
        self.check_waiters(now, reaches)
    }

    fn handle_reply(
        &mut self,
        op: &Op,
        reply: &Outcome,
        now: u64,
        reaches: &impl Fn(ClientId) -> bool,
    ) -> Result<(), Promise> {
        let holds = self.holds(now);
        match (*op, *reply) {
            (
                Op::Acquire {
                    lease,
                    count,
                    ttl,
                    tokens,
                    ..
                },
                Outcome::Granted { first },
            ) => {
                let certain = holds.certain.map(|hold| hold.lease);
                Promise::Exclusion.check(certain.is_none_or(|holder| holder == lease))?;
                self.grant_tokens(holds, lease, (first.get(), tokens.get().into()))?;
                if certain.is_none() {
                    self.serve(lease, reaches)?;
                }
                self.begin(lease, count, now, ttl);
                Ok(())
            }
            (
                Op::Acquire {
                    lease,
                    ttl,
                    tokens,
                    wait,
                    ..
                },
                Outcome::Refused {
                    time_left,
                    queue_position,
                },
            ) => {
                self.check_refusal(lease, time_left, now)?;
                let tokens = tokens.get().into();
                let expected = wait.then(|| self.queue.join(Waiter { lease, ttl, tokens }, now));
                Promise::Order.check(queue_position.map(u64::from) == expected)
            }
            (Op::Acquire { tokens, .. }, Outcome::Exhausted) => {
                Promise::TokenOrder.check(self.is_exhausted(now, tokens.get().into()))
            }
            (Op::Revoke, Outcome::Revoked { lease }) => {
                let known = lease.is_none_or(|lease| is_held_by(holds.possible, lease));
                let missed = lease.is_none() && holds.certain.is_some();
                self.hold = None;
                Promise::Loss.check(known && !missed)
            }
            _ => self.handle_holder_reply(op, reply, now),
        }
    }

    /// Processes the reply to an operation that only a holder sends.
    fn handle_holder_reply(&mut self, op: &Op, reply: &Outcome, now: u64) -> Result<(), Promise> {
        match (*op, *reply) {
            (
                Op::SetToken {
                    lease,
                    first,
                    tokens,
                },
                Outcome::Stored | Outcome::Outdated | Outcome::Exhausted,
            ) => {
                self.check_own(lease, now)?;
                self.set_tokens(first.get(), tokens.get().into(), *reply)
            }
            (Op::Renew { lease, ttl, count }, Outcome::Kept) => {
                let own = self.check_own(lease, now)?;
                self.begin(lease, count.unwrap_or(own.count), now, ttl);
                Ok(())
            }
            (Op::Release { lease, rest }, Outcome::Released) => {
                self.check_own(lease, now)?;
                self.hold = None;
                if let Some(rest) = rest {
                    let min_hold = LeaseId { number: 0, ..lease };
                    self.begin(min_hold, NonZeroU32::MIN, now, rest);
                }
                Ok(())
            }
            (
                Op::SetToken { lease, .. } | Op::Renew { lease, .. } | Op::Release { lease, .. },
                Outcome::Lost(_),
            ) => {
                let own = is_held_by(self.holds(now).certain, lease);
                self.hold = self.hold.filter(|hold| hold.lease != lease);
                self.queue.leave(lease);
                Promise::Loss.check(!own)
            }
            _ => Err(Promise::Reply),
        }
    }

    /// Checks the notice to a holder that was cut off. Returns the other notices.
    fn check_revocation<'a>(
        reply: &Outcome,
        notices: &'a [Notice],
        reaches: &impl Fn(ClientId) -> bool,
    ) -> Result<&'a [Notice], Promise> {
        let Outcome::Revoked { lease: Some(lease) } = *reply else {
            return Ok(notices);
        };
        match notices {
            [Notice::Revoked { lease: notified }, rest @ ..] if *notified == lease => Ok(rest),
            _ => Promise::Wake
                .check(!reaches(lease.client))
                .map(|()| notices),
        }
    }

    /// Processes the notices to waiters. The first is the `expected` one, if there is one.
    fn handle_notices(
        &mut self,
        notices: &[Notice],
        mut expected: Option<Notice>,
        now: u64,
        reaches: &impl Fn(ClientId) -> bool,
    ) -> Result<(), Promise> {
        for notice in notices {
            if let Notice::Granted(grant) = notice {
                self.handle_grant(grant, now, reaches)?;
                expected = self.next_notice(grant.ttl, reaches);
            } else {
                Promise::Wake.check(expected.take() == Some(*notice))?;
            }
        }
        Promise::Wake.check(expected.is_none())
    }

    /// The notice to the first living waiter that the lock may be free after `ttl`.
    fn next_notice(&mut self, ttl: Ttl, reaches: &impl Fn(ClientId) -> bool) -> Option<Notice> {
        let next = self.queue.pass_over(|lease| !reaches(lease.client));
        next.map(|lease| Notice::Next { lease, ttl })
    }

    fn handle_grant(
        &mut self,
        grant: &Grant,
        now: u64,
        reaches: &impl Fn(ClientId) -> bool,
    ) -> Result<(), Promise> {
        let holds = self.holds(now);
        let lease = grant.lease;
        Promise::Exclusion.check(holds.certain.is_none())?;
        let waiter = self.queue.find(lease).ok_or(Promise::Wake)?;
        Promise::Wake.check(reaches(lease.client) && grant.now.as_micros() == now)?;
        let acceptance = waiter.ttl.as_millis().min(ACCEPTANCE_MS);
        Promise::Acceptance.check(grant.ttl.as_millis() == acceptance)?;
        self.grant_tokens(holds, lease, (grant.first.get(), waiter.tokens))?;
        self.serve(lease, reaches)?;
        self.begin(lease, NonZeroU32::MIN, now, grant.ttl);
        Ok(())
    }

    /// A lease was granted the lock: no living waiter was before it.
    fn serve(
        &mut self,
        lease: LeaseId,
        reaches: &impl Fn(ClientId) -> bool,
    ) -> Result<(), Promise> {
        let mut before = self.queue.serve(lease).into_iter();
        Promise::Order.check(!before.any(|before| reaches(before.client)))
    }

    /// A lock is not free while a living waiter is in its queue. Dead ones are removed.
    fn check_waiters(
        &mut self,
        now: u64,
        reaches: &impl Fn(ClientId) -> bool,
    ) -> Result<(), Promise> {
        if self.holds(now).possible.is_some() {
            return Ok(());
        }
        let waiters = std::mem::take(&mut self.queue);
        let mut waiters = waiters.waiters().iter();
        let is_missed = |waiter: &Waiter| {
            reaches(waiter.lease.client) && !self.is_exhausted(now, waiter.tokens)
        };
        Promise::Wake.check(!waiters.any(is_missed))
    }
}

#[cfg(test)]
mod tests;
