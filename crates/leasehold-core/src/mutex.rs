//! The rule of a mutex: what one operation does to the record of one name.
//!
//! [`apply`] is the reference. The memory store and `SQLite` call it. The Redis script is compared with it,
//! operation by operation, on random histories.
//!
//! Two properties make every operation safe to send again:
//!
//! * A lease id stands for one acquisition, so a late message can only concern its own grant.
//! * Hold counts are absolute. A client that enters twice sends "two", not "one more".
//!
//! And a third one makes their order harmless: only a release and a revocation shorten a lease. A
//! request that is applied late, after one with a longer ttl, does not shorten the lease of a holder whose
//! longer ttl was confirmed.
//!
//! A holder can end its lease and keep the name taken for a while: its minimum hold. The record then names a lease
//! that no client has ([`ClientId::min_hold_lease`](crate::id::ClientId::min_hold_lease)). So no late request of the holder changes it, and every other lease is
//! refused until it expires.
//!
//! A refused lease can wait in a queue. An operation that finds the lock free grants it to the head of the queue
//! in the same step, and notifies it: normally the release. A request cannot overtake the queue.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::id::LeaseId;
use crate::queue::{self, Queue, Waiter};
use crate::time::{StoreTime, Ttl};
use crate::token::{self, Token, TokenCount};

/// The record of a lock in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Record {
    /// The last holder. Its lease may have expired: see [`Record::holder`].
    pub hold: Option<RecordHolder>,
    /// The last token given out for this lock.
    pub last_token: Option<Token>,
    /// The waiters. They may have expired, too: [`apply`] drops them then.
    pub queue: Queue,
}

/// The holder in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordHolder {
    /// The lease that holds the lock.
    pub lease: LeaseId,
    /// How many holds the client has on it.
    pub count: NonZeroU32,
    /// When it ends unless it is renewed.
    pub expires_at: StoreTime,
}

impl RecordHolder {
    /// Keeps the lease for `ttl` from now, or longer if it is kept longer already.
    fn keep(&mut self, now: StoreTime, ttl: Ttl) {
        self.expires_at = self.expires_at.max(now.after(ttl));
    }
}

impl Record {
    /// The holder at `now`, if its lease has not expired.
    #[must_use]
    pub fn holder(&self, now: StoreTime) -> Option<&RecordHolder> {
        self.hold.as_ref().filter(|hold| now < hold.expires_at)
    }
}

/// An operation on a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Acquire the lock, or, as its holder, set the hold count and start the ttl anew.
    Acquire {
        /// The lease that is to hold it.
        lease: LeaseId,
        /// The hold count wanted.
        count: NonZeroU32,
        /// How long the store keeps it.
        ttl: Ttl,
        /// How many tokens to reserve. The same for every request of one lease.
        tokens: TokenCount,
        /// A proposal for the first token, to one of many masters, which keeps no queue. The first token is not
        /// smaller, and not behind the store's time.
        proposal: Option<Token>,
        /// Whether to wait in the queue if it is refused.
        wait: bool,
    },
    /// As its holder, start the ttl anew and, if given, set the hold count. It does not acquire a lock that is no
    /// longer held.
    Renew {
        /// The lease that holds the lock.
        lease: LeaseId,
        /// How long the store keeps it, from now, if that is longer than it does already.
        ttl: Ttl,
        /// The hold count wanted.
        count: Option<NonZeroU32>,
    },
    /// As its holder, end the lease, whatever its hold count. A lease that waits leaves the queue.
    Release {
        /// The lease that holds the lock.
        lease: LeaseId,
        /// The rest of its minimum hold, for which the name stays taken.
        rest: Option<Ttl>,
    },
    /// As its holder, store a block of tokens that was chosen elsewhere, for a lock over many masters. It must be
    /// larger than all before, or the one that was stored last.
    SetToken {
        /// The lease that holds the lock.
        lease: LeaseId,
        /// The first token of the block.
        first: Token,
        /// How many tokens the block has.
        tokens: TokenCount,
    },
    /// Free the lock, whichever lease holds it, on behalf of an operator.
    Revoke,
}

impl Op {
    /// Its ttl, if it has one.
    #[must_use]
    pub const fn ttl(&self) -> Option<Ttl> {
        match self {
            Self::Acquire { ttl, .. } | Self::Renew { ttl, .. } => Some(*ttl),
            Self::Release { rest, .. } => *rest,
            Self::SetToken { .. } | Self::Revoke => None,
        }
    }

    /// The token that it proposes.
    #[must_use]
    pub const fn proposal(&self) -> Option<Token> {
        match self {
            Self::Acquire { proposal, .. } => *proposal,
            _ => None,
        }
    }
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The lease holds the lock.
    Granted {
        /// The first of the reserved tokens. The same for a repeated request of the same grant.
        first: Token,
    },
    /// Another lease holds the lock.
    Refused {
        /// The time until that lease expires unless it is renewed or released.
        time_left: Duration,
        /// How many wait before this lease. `None`: it does not wait in the queue.
        queue_position: Option<u32>,
    },
    /// The ttl starts anew, and the hold count is set if one was given.
    Kept,
    /// The lock is free, or will be after the minimum hold.
    Released,
    /// The lease does not hold the lock.
    Lost(Loss),
    /// The tokens are stored.
    Stored,
    /// The tokens are not stored: a larger one was given out before.
    Outdated,
    /// The lock is free now.
    Revoked {
        /// The lease that held the lock, if there was one.
        lease: Option<LeaseId>,
    },
    /// There is no larger token: the counter was changed by something else.
    Exhausted,
}

/// The state of the lock of a lease that does not hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// No lease holds it.
    Free,
    /// Another lease holds it.
    TakenOver,
}

/// A grant to a waiter, as it is notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The lease that holds the lock now, with one hold.
    pub lease: LeaseId,
    /// How long the store keeps it.
    pub ttl: Ttl,
    /// The first of the tokens reserved for it.
    pub first: Token,
    /// The store's time.
    pub now: StoreTime,
}

/// A notification of a store to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// A waiter was granted the lock.
    Granted(Grant),
    /// A waiter is the first living one behind a grant: another was granted the lock, for `ttl` unless it renews. If
    /// that one is dead, only this waiter notices. Or it is the first behind a minimum hold, which ends after `ttl`.
    Next {
        /// The lease that waits.
        lease: LeaseId,
        /// How long the grant or the minimum hold lasts.
        ttl: Ttl,
    },
    /// A holder was cut off by an operator.
    Revoked {
        /// The lease that held the lock.
        lease: LeaseId,
    },
}

impl Notice {
    /// The lease that it is for.
    #[must_use]
    pub const fn lease(&self) -> LeaseId {
        match self {
            Self::Granted(grant) => grant.lease,
            Self::Next { lease, .. } | Self::Revoked { lease } => *lease,
        }
    }
}

/// Applies one operation to a record at the store's time `now`.
///
/// `notify` sends a notice to the client that it is for, and returns whether that client is alive: whether its own
/// connection can be reached. A waiter that is not alive is passed over: when its turn comes, or when it is the next
/// behind a grant, which a living one must watch. A notice is valid only if the record is stored: a store that may
/// still fail delays its notices until it cannot.
pub fn apply(
    record: &mut Record,
    op: &Op,
    now: StoreTime,
    mut notify: impl FnMut(&Notice) -> bool,
) -> Outcome {
    record.hold = record.holder(now).copied();
    record.queue.expire(now);
    match *op {
        Op::Acquire {
            lease,
            count,
            ttl,
            tokens,
            wait,
            ..
        } => {
            pass_on(record, now, Some(lease), &mut notify);
            let waiter = Waiter { lease, ttl, tokens };
            // Not behind the store's time, so that tokens grow also where the counter was lost.
            let proposal = op.proposal().max(Token::at(now));
            acquire(record, now, waiter, count, proposal, wait)
        }
        Op::SetToken {
            lease,
            first,
            tokens,
        } => {
            let own = own(record, lease).is_some();
            let outcome = own.then(|| fence(record, first, tokens));
            pass_on_without(record, now, lease, outcome, &mut notify)
        }
        Op::Renew { lease, ttl, count } => {
            let outcome = own(record, lease).map(|hold| {
                hold.count = count.unwrap_or(hold.count);
                hold.keep(now, ttl);
                Outcome::Kept
            });
            pass_on_without(record, now, lease, outcome, &mut notify)
        }
        Op::Release { lease, rest } => {
            let own = own(record, lease).is_some();
            let outcome = own.then(|| release(record, now, lease, rest, &mut notify));
            pass_on_without(record, now, lease, outcome, &mut notify)
        }
        Op::Revoke => {
            let lease = record.hold.take().map(|hold| hold.lease);
            if let Some(lease) = lease {
                notify(&Notice::Revoked { lease });
            }
            pass_on(record, now, None, &mut notify);
            Outcome::Revoked { lease }
        }
    }
}

/// Grants a free lock to the first waiter that can be notified.
///
/// If that is the lease of the request, it stays the head: the reply is its grant.
fn pass_on(
    record: &mut Record,
    now: StoreTime,
    requester: Option<LeaseId>,
    notify: &mut impl FnMut(&Notice) -> bool,
) {
    while record.hold.is_none()
        && let Some(&head) = record.queue.head()
        && requester != Some(head.lease)
    {
        // Without a larger token there is no grant; the reply to an acquire names the reason.
        let Some(first) = reserve(record, Token::at(now), head.tokens) else {
            return;
        };
        record.queue.pop();
        let ttl = queue::acceptance(head.ttl);
        let grant = Grant {
            lease: head.lease,
            ttl,
            first,
            now,
        };
        if notify(&Notice::Granted(grant)) {
            record.hold = Some(RecordHolder {
                lease: head.lease,
                count: NonZeroU32::MIN,
                expires_at: now.after(ttl),
            });
            notify_next(record, ttl, notify);
        }
    }
}

/// Notifies the first living waiter that the lock may be free after `ttl`.
///
/// A dead waiter cannot watch that time, and by their positions the others would retry too late.
fn notify_next(record: &mut Record, ttl: Ttl, notify: &mut impl FnMut(&Notice) -> bool) {
    while let Some(&Waiter { lease, .. }) = record.queue.head()
        && !notify(&Notice::Next { lease, ttl })
    {
        record.queue.pop();
    }
}

fn acquire(
    record: &mut Record,
    now: StoreTime,
    waiter: Waiter,
    count: NonZeroU32,
    proposal: Option<Token>,
    wait: bool,
) -> Outcome {
    let Waiter { lease, ttl, tokens } = waiter;
    let known = match &record.hold {
        Some(hold) if hold.lease != lease => {
            let queue_position = wait.then(|| record.queue.join(waiter, now));
            return Outcome::Refused {
                time_left: now.until(hold.expires_at),
                queue_position,
            };
        }
        // A repeated request: the counter still ends with the block of this grant, unless it was lost.
        Some(_) => record
            .last_token
            .and_then(|last| token::block_first(last, tokens)),
        None => None,
    };
    let Some(first) = known.or_else(|| reserve(record, proposal, tokens)) else {
        return Outcome::Exhausted;
    };
    record.queue.leave(lease);
    let mut hold = RecordHolder {
        lease,
        count,
        expires_at: record.hold.map_or(now, |own| own.expires_at),
    };
    hold.keep(now, ttl);
    record.hold = Some(hold);
    Outcome::Granted { first }
}

/// Only a holder renews and releases. A lease that did, and was not the holder, does not wait any more. Then a free
/// lock is passed on.
fn pass_on_without(
    record: &mut Record,
    now: StoreTime,
    lease: LeaseId,
    outcome: Option<Outcome>,
    notify: &mut impl FnMut(&Notice) -> bool,
) -> Outcome {
    if outcome.is_none() {
        record.queue.leave(lease);
    }
    pass_on(record, now, None, notify);
    outcome.unwrap_or(Outcome::Lost(match record.hold {
        Some(_) => Loss::TakenOver,
        None => Loss::Free,
    }))
}

/// Ends the lease of the holder.
fn release(
    record: &mut Record,
    now: StoreTime,
    lease: LeaseId,
    rest: Option<Ttl>,
    notify: &mut impl FnMut(&Notice) -> bool,
) -> Outcome {
    record.hold = rest.map(|rest| RecordHolder {
        lease: lease.client.min_hold_lease(),
        count: NonZeroU32::MIN,
        expires_at: now.after(rest),
    });
    if let Some(rest) = rest {
        notify_next(record, rest, notify);
    }
    Outcome::Released
}

/// Stores a block of tokens.
fn fence(record: &mut Record, first: Token, tokens: TokenCount) -> Outcome {
    let Some(last) = token::block_last(first, tokens) else {
        return Outcome::Exhausted;
    };
    match record.last_token {
        // Stored before. No other lease can have stored it: the lock was held all the time.
        Some(before) if before == last => Outcome::Stored,
        Some(before) if before >= first => Outcome::Outdated,
        _ => {
            record.last_token = Some(last);
            Outcome::Stored
        }
    }
}

/// Reserves the next block of tokens.
fn reserve(record: &mut Record, proposal: Option<Token>, tokens: TokenCount) -> Option<Token> {
    let first = token::next_block(record.last_token, proposal?, tokens)?;
    record.last_token = token::block_last(first, tokens);
    Some(first)
}

fn own(record: &mut Record, lease: LeaseId) -> Option<&mut RecordHolder> {
    record.hold.as_mut().filter(|hold| hold.lease == lease)
}

#[cfg(test)]
mod tests;
