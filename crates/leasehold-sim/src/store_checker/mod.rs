//! A checker of the replies and notices of a store.
//!
//! It shares no code with the rule, only the types of requests and replies. It knows of a lease what the
//! promises state: the lease begins with its grant, ends at its ttl, and may be renewed, released or
//! revoked before. A minimum hold begins with its release, and only time or a revocation ends it. Refused waiters are
//! served in the order of their requests, by a notified grant. Only a holder writes a note, and no lock is a latch. An id
//! counts once at a latch.

mod hold;
mod promise;
mod queue;

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use leasehold_core::record::{Kind, Unless};
use leasehold_core::{
    Acquire, Annotation, ArrivalId, ClientId, Grant, LeaseId, Mismatch, NewNote, Notice, Op,
    Outcome, Removal, Slot, StoreTime, Ttl, Whom,
};

use self::hold::Hold;
pub use self::promise::{Promise, Violation};
use self::queue::{Queue, Waiter};

/// The longest acceptance ttl, in milliseconds.
const ACCEPTANCE_MS: u64 = 3_000;

/// The store's time, and the clients that it can notify.
#[derive(Clone, Copy)]
struct At<'a> {
    now: u64,
    reaches: &'a dyn Fn(ClientId) -> bool,
}

impl At<'_> {
    fn reaches(self, lease: LeaseId) -> bool {
        (self.reaches)(lease.client)
    }
}

/// Checks the operations on one name in the order in which its store applied them.
#[derive(Clone, Debug, Default)]
pub struct StoreChecker {
    hold: Option<Hold>,
    queue: Queue,
    /// The leases that have written notes.
    written: BTreeSet<(LeaseId, Slot)>,
    /// The ids of all arrivals at latches.
    arrived: BTreeSet<ArrivalId>,
    last_token: u64,
}

impl StoreChecker {
    /// Checks one operation: its reply, and the notices that were sent to living waiters, in this order. `reaches` returns
    /// whether a client lives, so that the store can notify it.
    ///
    /// # Errors
    ///
    /// The promise that was violated.
    pub fn observe(
        &mut self,
        op: &Op,
        reply: &Outcome,
        notices: &[Notice],
        now: StoreTime,
        reaches: impl Fn(ClientId) -> bool,
    ) -> Result<(), Violation> {
        let before = self.clone();
        let at = At {
            now: now.as_micros(),
            reaches: &reaches,
        };
        let what = || format!("{op:?} at {now:?}: {reply:?}, {notices:?}, {before:?}");
        let checked = self.check(op, reply, notices, at);
        checked.map_err(|promise| promise.violated(what()))
    }

    fn check(
        &mut self,
        op: &Op,
        reply: &Outcome,
        notices: &[Notice],
        at: At<'_>,
    ) -> Result<(), Promise> {
        self.queue.expire(at.now);
        self.expire(at.now);
        match op {
            Op::Remove(Removal::Note(_)) => return Promise::Wake.check(notices.is_empty()),
            // They change nothing of a lock, but serve its queue.
            _ if matches!(reply, Outcome::Mismatch(_))
                || matches!(op, Op::Arrive { .. } | Op::Remove(Removal::Latch)) =>
            {
                self.handle_notices(notices, None, at)?;
                self.check_kind(reply, at)?;
                self.check_arrival(op, reply)?;
            }
            // It first lets the waiters before it hold a free lock, and those behind it if it leaves the queue.
            Op::Acquire(request) => {
                if let Outcome::Complete(_) = reply {
                    self.queue.leave(request.lease);
                }
                self.handle_notices(notices, None, at)?;
                self.handle_acquire_reply(request, reply, at)?;
            }
            // It may free the lock for the next waiter.
            _ => {
                let is_reserved = |hold: Option<Hold>| hold.is_some_and(|hold| hold.is_reserved);
                let was_reserved = is_reserved(self.hold);
                self.handle_holder_reply(op, reply, at.now)?;
                let notices = Self::check_revocation(reply, notices, at)?;
                let begins = is_reserved(self.hold) && !was_reserved;
                let rest = op.ttl().filter(|_| begins);
                let next = rest.and_then(|rest| self.next_notice(rest, at));
                self.handle_notices(notices, next, at)?;
                if let (Op::WriteNote { note, .. }, Outcome::Stored) = (op, reply)
                    && note.slot != Slot::Value
                {
                    self.queue.pass_over(|lease| !at.reaches(lease));
                }
            }
        }
        self.check_waiters(at)
    }

    fn handle_acquire_reply(
        &mut self,
        request: &Acquire,
        reply: &Outcome,
        at: At<'_>,
    ) -> Result<(), Promise> {
        let held = self.held(at.now);
        let (lease, ttl, tokens) = (request.lease, request.ttl, request.tokens.get().into());
        match reply {
            Outcome::Granted { first, .. } => {
                let first = first.get();
                Promise::Exclusion.check(held.is_none_or(|hold| hold.is_of(lease)))?;
                self.grant_tokens(held, lease, (first, tokens))?;
                if held.is_none() {
                    self.serve(lease, at)?;
                }
                let own = self.hold.filter(|hold| hold.is_of(lease));
                let until = own.map_or(0, |own| own.until);
                let hold = Hold::new(lease, first, request.count, until);
                self.begin(hold, at.now, ttl);
                Ok(())
            }
            Outcome::Refused {
                time_left,
                queue_position,
            } => {
                self.check_refusal(lease, *time_left, at.now)?;
                // A lease in its minimum hold does not wait for its own end.
                let waits = request.wait && self.hold.is_none_or(|hold| hold.lease != lease);
                let waiter = Waiter {
                    lease,
                    ttl,
                    tokens,
                    run: request.unless.as_ref().map(Unless::slot),
                };
                let expected = waits.then(|| self.queue.join(waiter, at.now));
                Promise::Order.check(queue_position.map(u64::from) == expected)
            }
            Outcome::Complete(note) => {
                let is_held = held.is_some_and(|hold| hold.is_of(lease));
                let slot = request.unless.as_ref().map(Unless::slot);
                Promise::Run.check(!is_held && self.is_written(slot, note))
            }
            Outcome::Exhausted => {
                // A request does not overtake a waiter for whom there are no tokens.
                let mut waiters = self.queue.waiters().iter();
                let first = waiters.find(|waiter| at.reaches(waiter.lease));
                let blocks = first.map(|waiter| waiter.tokens).into_iter();
                let mut blocks = blocks.chain([tokens]);
                Promise::TokenOrder.check(blocks.any(|tokens| self.is_exhausted(at.now, tokens)))
            }
            _ => Err(Promise::Reply),
        }
    }

    /// Processes the reply to an operation of a holder, or to a revocation.
    fn handle_holder_reply(&mut self, op: &Op, reply: &Outcome, now: u64) -> Result<(), Promise> {
        match (op, reply) {
            (
                Op::SetToken { lease, .. },
                Outcome::Stored | Outcome::Outdated | Outcome::Exhausted,
            ) => {
                self.check_own(*lease, now)?;
                self.set_tokens(op, reply)
            }
            (Op::Renew { lease, ttl, count }, Outcome::Kept) => {
                let own = self.check_own(*lease, now)?;
                let count = count.unwrap_or(own.count);
                self.begin(Hold { count, ..own }, now, *ttl);
                Ok(())
            }
            (Op::WriteNote { lease, note }, Outcome::Stored | Outcome::Outdated) => {
                self.written.insert((*lease, note.slot.clone()));
                self.check_own(*lease, now).map(drop)
            }
            (Op::Release { lease, rest, note }, Outcome::Released) => {
                self.handle_release(*lease, *rest, note.as_ref(), now)
            }
            (Op::Revoke(whom), Outcome::Revoked(leases)) => {
                let is_meant = |hold: &Hold| match whom {
                    Whom::All => true,
                    Whom::One(lease) => hold.lease == *lease,
                };
                let held = self.held(now).filter(is_meant).map(|hold| hold.lease);
                self.hold = self.hold.filter(|hold| !is_meant(hold));
                Promise::Loss.check(*leases == Vec::from_iter(held))
            }
            (_, Outcome::Lost(_)) => {
                let lease = op.lease().ok_or(Promise::Reply)?;
                let is_own = |hold: &Hold| hold.is_of(lease);
                let is_held = self.held(now).as_ref().is_some_and(is_own);
                self.hold = self.hold.filter(|hold| !is_own(hold));
                self.queue.leave(lease);
                Promise::Loss.check(!is_held)
            }
            _ => Err(Promise::Reply),
        }
    }

    fn handle_release(
        &mut self,
        lease: LeaseId,
        rest: Option<Ttl>,
        note: Option<&NewNote>,
        now: u64,
    ) -> Result<(), Promise> {
        let written = note.map(|note| (lease, note.slot.clone()));
        let own = match self.check_own(lease, now) {
            Ok(own) => own,
            // It was released before, with its note.
            Err(_) if written.is_some_and(|written| self.written.contains(&written)) => {
                self.queue.leave(lease);
                return Ok(());
            }
            Err(promise) => return Err(promise),
        };
        self.written.extend(written);
        self.hold = None;
        if let Some(rest) = rest {
            let mut min_hold = Hold::new(lease, own.first, NonZeroU32::MIN, 0);
            min_hold.is_reserved = true;
            self.begin(min_hold, now, rest);
        }
        Ok(())
    }

    /// Checks that a lock is not a latch, nor a latch a lock.
    fn check_kind(&mut self, reply: &Outcome, at: At<'_>) -> Result<(), Promise> {
        let held = self.held(at.now);
        Promise::Kind.check(match reply {
            Outcome::Arrived(_)
            | Outcome::Removed(_)
            | Outcome::Mismatch(Mismatch::Kind(Kind::Latch) | Mismatch::Count { .. }) => {
                let first = self.queue.pass_over(|lease| !at.reaches(lease));
                held.is_none() && first.is_none()
            }
            Outcome::Mismatch(Mismatch::Kind(_)) => {
                let is_awaited = !self.queue.waiters().is_empty();
                held.is_some() || is_awaited
            }
            _ => true,
        })
    }

    /// Checks that an id counts once at a latch, however often it arrives.
    fn check_arrival(&mut self, op: &Op, reply: &Outcome) -> Result<(), Promise> {
        let (Op::Arrive { id, .. }, Outcome::Arrived(status)) = (op, reply) else {
            return Ok(());
        };
        self.arrived.insert(id.clone());
        Promise::Arrivals.check(status.arrived as usize <= self.arrived.len())
    }

    /// Checks the notice to a holder that was cut off. Returns the other notices.
    fn check_revocation<'a>(
        reply: &Outcome,
        notices: &'a [Notice],
        at: At<'_>,
    ) -> Result<&'a [Notice], Promise> {
        let Outcome::Revoked(leases) = reply else {
            return Ok(notices);
        };
        let Some(lease) = leases.first() else {
            return Ok(notices);
        };
        match notices {
            [Notice::Revoked { lease: notified }, rest @ ..] if notified == lease => Ok(rest),
            _ => Promise::Wake.check(!at.reaches(*lease)).map(|()| notices),
        }
    }

    /// Processes the notices to waiters. The first is the `expected` one, if there is one.
    fn handle_notices(
        &mut self,
        notices: &[Notice],
        mut expected: Option<Notice>,
        at: At<'_>,
    ) -> Result<(), Promise> {
        for notice in notices {
            match notice {
                Notice::Granted(grant) => {
                    self.handle_grant(grant, at)?;
                    expected = self.next_notice(grant.ttl, at);
                }
                Notice::Complete { lease, note } => {
                    let waiter = self.queue.find(*lease).ok_or(Promise::Run)?;
                    Promise::Run.check(self.is_written(waiter.run, note))?;
                    self.serve(*lease, at)?;
                    if let Some(Notice::Next { ttl, .. }) = expected {
                        expected = self.next_notice(ttl, at);
                    }
                }
                notice => Promise::Wake.check(expected.take().as_ref() == Some(notice))?,
            }
        }
        Promise::Wake.check(expected.is_none())
    }

    /// Whether the lease of a note has written one in a slot.
    fn is_written(&self, slot: Option<Slot>, note: &Annotation) -> bool {
        slot.is_some_and(|slot| self.written.contains(&(note.lease, slot)))
    }

    /// The notice to the first living waiter that the lock may be free after `ttl`.
    fn next_notice(&mut self, ttl: Ttl, at: At<'_>) -> Option<Notice> {
        let next = self.queue.pass_over(|lease| !at.reaches(lease));
        next.map(|lease| Notice::Next { lease, ttl })
    }

    fn handle_grant(&mut self, grant: &Grant, at: At<'_>) -> Result<(), Promise> {
        let held = self.held(at.now);
        let lease = grant.lease;
        Promise::Exclusion.check(held.is_none())?;
        let waiter = self.queue.find(lease).ok_or(Promise::Wake)?;
        Promise::Wake.check(at.reaches(lease) && grant.now.as_micros() == at.now)?;
        let acceptance = waiter.ttl.as_millis().min(ACCEPTANCE_MS);
        Promise::Acceptance.check(grant.ttl.as_millis() == acceptance)?;
        let first = grant.first.get();
        self.grant_tokens(held, lease, (first, waiter.tokens))?;
        self.serve(lease, at)?;
        let hold = Hold::new(lease, first, NonZeroU32::MIN, 0);
        self.begin(hold, at.now, grant.ttl);
        Ok(())
    }

    /// A lease was granted the lock: no living waiter was before it.
    fn serve(&mut self, lease: LeaseId, at: At<'_>) -> Result<(), Promise> {
        let mut before = self.queue.serve(lease).into_iter();
        Promise::Order.check(!before.any(|before| at.reaches(before)))
    }

    /// A lock is not free while a living waiter is in its queue. Dead ones are removed.
    fn check_waiters(&mut self, at: At<'_>) -> Result<(), Promise> {
        if self.held(at.now).is_some() {
            return Ok(());
        }
        let waiters = std::mem::take(&mut self.queue);
        let mut waiters = waiters.waiters().iter();
        let is_missed =
            |waiter: &Waiter| at.reaches(waiter.lease) && !self.is_exhausted(at.now, waiter.tokens);
        Promise::Wake.check(!waiters.any(is_missed))
    }
}

#[cfg(test)]
mod tests;
