//! The rule of a mutex: what one operation does to the record of one name.
//!
//! [`apply`] is the reference. The memory store and `SQLite` call it. The Redis script is compared with it,
//! operation by operation, on random histories.
//!
//! Two properties make every operation safe to send again:
//!
//! * A lease id stands for one acquisition, so a late message concerns only its own grant.
//! * Hold counts are absolute: the second entry sets the count to two and does not add one.
//!
//! A third property makes their order harmless: only the last release and a revocation shorten a lease. A
//! late request, after one with a longer ttl, takes nothing away from a holder that relies on the longer one.
//!
//! A refused lease may wait in a queue. The operation that finds the lock free, normally the release, grants
//! it to the head of the queue in the same step and notifies it. No lease overtakes the queue.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::id::LeaseId;
use crate::queue::{self, Queue, Waiter};
use crate::time::{StoreTime, Ttl};
use crate::token::{self, Token, TokenCount};

/// The record of one name in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Record {
    /// The holder. It may have expired: see [`Record::holder`].
    pub hold: Option<RecordHolder>,
    /// The last token granted under this name.
    pub last_token: Option<Token>,
    /// The waiters. They may have expired, too: [`apply`] drops them then.
    pub queue: Queue,
}

/// The holder of a lock, as its record keeps it.
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
    /// Keeps the lease for `ttl` from now, or as long as it is kept already.
    fn keep(&mut self, now: StoreTime, ttl: Ttl) {
        self.expires_at = self.expires_at.max(now.after(ttl));
    }
}

impl Record {
    /// The holder at `now`; an expired one is none.
    #[must_use]
    pub fn holder(&self, now: StoreTime) -> Option<&RecordHolder> {
        self.hold.as_ref().filter(|hold| now < hold.expires_at)
    }
}

/// An operation on a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Take the lock, or, as its holder, set the hold count and start the ttl anew.
    Acquire {
        /// The lease that shall hold it.
        lease: LeaseId,
        /// The hold count wanted.
        count: NonZeroU32,
        /// How long the store keeps it.
        ttl: Ttl,
        /// How many tokens to reserve. The same for every request of one lease.
        tokens: TokenCount,
        /// Whether to wait in the queue if it is refused.
        wait: bool,
    },
    /// As its holder, set the hold count: another task of the same owner enters. A lease that does not hold
    /// the lock any more does not acquire it.
    Enter {
        /// The lease that holds the lock.
        lease: LeaseId,
        /// The hold count wanted.
        count: NonZeroU32,
        /// How long the store keeps it, from now, if that is longer than it does already.
        ttl: Ttl,
    },
    /// Start the ttl anew.
    Renew {
        /// The lease that holds the lock.
        lease: LeaseId,
        /// How long the store keeps it, from now, if that is longer than it does already.
        ttl: Ttl,
    },
    /// Set the hold count; at 0 the lock is free, and a lease that waits gives up its place.
    Release {
        /// The lease that holds the lock.
        lease: LeaseId,
        /// The hold count that remains.
        count: u32,
        /// How long the store keeps it, from now, if a hold remains and that is longer than it does
        /// already.
        ttl: Ttl,
    },
    /// As its holder, write a block of tokens that was chosen for the lock over many masters. It must be larger
    /// than all before, or the one that was written last.
    SetToken {
        /// The lease that holds the lock.
        lease: LeaseId,
        /// The first token of the block.
        first: Token,
        /// The size of the block.
        tokens: TokenCount,
    },
    /// Free the lock, whichever lease holds it: an operator's decision.
    Revoke,
}

impl Op {
    /// The ttl that it names, if it does.
    #[must_use]
    pub const fn ttl(&self) -> Option<Ttl> {
        match self {
            Self::Acquire { ttl, .. }
            | Self::Enter { ttl, .. }
            | Self::Renew { ttl, .. }
            | Self::Release { ttl, .. } => Some(*ttl),
            Self::SetToken { .. } | Self::Revoke => None,
        }
    }
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The lease holds the lock.
    Granted {
        /// The first of the reserved tokens. A repeated request of the same grant has the same.
        first: Token,
    },
    /// Another lease holds the lock.
    Refused {
        /// How long it holds it unless it renews or releases.
        left: Duration,
        /// The number of waiters before this one. `None`: it does not wait in the queue.
        place: Option<u32>,
    },
    /// The hold count is set.
    Entered {
        /// The hold count.
        count: NonZeroU32,
    },
    /// The ttl starts anew.
    Renewed,
    /// The hold count is set; at 0 the lock is free.
    Released {
        /// The hold count that remains.
        count: u32,
    },
    /// The lease does not hold the lock (any more).
    Lost(Loss),
    /// The tokens are written down.
    Fenced,
    /// The tokens are not written down: a larger one was granted before.
    Outdated,
    /// The lock is free now.
    Revoked {
        /// The lease that was cut off, if there was one.
        cut_off: Option<LeaseId>,
    },
    /// There is no larger token: another program has written the counter.
    Exhausted,
}

/// The state of a lock that a lease does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// It is free.
    Gone,
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
    /// Another waiter was granted the lock for `ttl`, and this one is the first living waiter behind it. It
    /// retries if the other does not renew: no other client would notice that.
    Next {
        /// The lease that waits.
        lease: LeaseId,
        /// How long the other's grant is.
        ttl: Ttl,
    },
    /// A holder was cut off by an operator.
    Revoked {
        /// The lease that held the lock.
        lease: LeaseId,
    },
}

impl Notice {
    /// The lease whose client is notified.
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
/// `tell` notifies a client, and returns whether the connection of that client can be reached. Otherwise the
/// waiter is skipped: when its turn comes, or when it is the next behind a grant, since a living waiter must
/// supervise that. A notice is valid only if the record is kept: a store that may still fail delays it until
/// the record is committed.
pub fn apply(
    record: &mut Record,
    op: &Op,
    now: StoreTime,
    mut tell: impl FnMut(&Notice) -> bool,
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
        } => {
            pass_on(record, now, Some(lease), &mut tell);
            let asker = Waiter { lease, ttl, tokens };
            acquire(record, now, asker, count, wait)
        }
        Op::Enter { lease, count, ttl } => {
            let outcome = set_count(record, now, lease, count, ttl);
            let outcome = outcome.map(|()| Outcome::Entered { count });
            pass_on_without(record, now, lease, outcome, &mut tell)
        }
        Op::SetToken {
            lease,
            first,
            tokens,
        } => {
            let own = own(record, lease).is_some();
            let outcome = own.then(|| fence(record, first, tokens));
            pass_on_without(record, now, lease, outcome, &mut tell)
        }
        Op::Renew { lease, ttl } => {
            let own = own(record, lease).map(|hold| hold.keep(now, ttl));
            let outcome = own.map(|()| Outcome::Renewed);
            pass_on_without(record, now, lease, outcome, &mut tell)
        }
        Op::Release { lease, count, ttl } => {
            let outcome = release(record, now, lease, count, ttl);
            pass_on_without(record, now, lease, outcome, &mut tell)
        }
        Op::Revoke => {
            let cut_off = record.hold.take().map(|hold| hold.lease);
            if let Some(lease) = cut_off {
                tell(&Notice::Revoked { lease });
            }
            pass_on(record, now, None, &mut tell);
            Outcome::Revoked { cut_off }
        }
    }
}

/// Grants a free lock to the first waiter that can be notified.
///
/// If that is the asker itself, it stays the head: its reply is its grant.
fn pass_on(
    record: &mut Record,
    now: StoreTime,
    asker: Option<LeaseId>,
    tell: &mut impl FnMut(&Notice) -> bool,
) {
    while record.hold.is_none()
        && let Some(&head) = record.queue.head()
        && asker != Some(head.lease)
    {
        // Without a larger token there is no grant. The reply to the next acquire names the reason.
        let Some(first) = reserve(record, now, head.tokens) else {
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
        if tell(&Notice::Granted(grant)) {
            record.hold = Some(RecordHolder {
                lease: head.lease,
                count: NonZeroU32::MIN,
                expires_at: now.after(ttl),
            });
            // A dead waiter cannot supervise the grant, and by its place the others would retry too late.
            while let Some(&Waiter { lease, .. }) = record.queue.head()
                && !tell(&Notice::Next { lease, ttl })
            {
                record.queue.pop();
            }
        }
    }
}

fn acquire(
    record: &mut Record,
    now: StoreTime,
    asker: Waiter,
    count: NonZeroU32,
    wait: bool,
) -> Outcome {
    let Waiter { lease, ttl, tokens } = asker;
    let known = match &record.hold {
        Some(hold) if hold.lease != lease => {
            let left = now.until(hold.expires_at);
            let place = wait.then(|| record.queue.join(asker, now));
            return Outcome::Refused { left, place };
        }
        // A repeated request: the counter still ends with the block of this grant, unless it was lost.
        Some(_) => record
            .last_token
            .and_then(|last| token::block_first(last, tokens)),
        None => None,
    };
    let Some(first) = known.or_else(|| reserve(record, now, tokens)) else {
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

/// Removes a lease from the queue and passes a free lock on: a lease that is renewed or released does not
/// wait.
fn pass_on_without(
    record: &mut Record,
    now: StoreTime,
    lease: LeaseId,
    outcome: Option<Outcome>,
    tell: &mut impl FnMut(&Notice) -> bool,
) -> Outcome {
    if outcome.is_none() {
        record.queue.leave(lease);
    }
    pass_on(record, now, None, tell);
    outcome.unwrap_or(Outcome::Lost(match record.hold {
        Some(_) => Loss::TakenOver,
        None => Loss::Gone,
    }))
}

/// `None`: the lease holds nothing.
fn release(
    record: &mut Record,
    now: StoreTime,
    lease: LeaseId,
    count: u32,
    ttl: Ttl,
) -> Option<Outcome> {
    match NonZeroU32::new(count) {
        Some(count) => set_count(record, now, lease, count, ttl)?,
        None => {
            own(record, lease)?;
            record.hold = None;
        }
    }
    Some(Outcome::Released { count })
}

/// `None`: the lease holds nothing.
fn set_count(
    record: &mut Record,
    now: StoreTime,
    lease: LeaseId,
    count: NonZeroU32,
    ttl: Ttl,
) -> Option<()> {
    let hold = own(record, lease)?;
    hold.count = count;
    hold.keep(now, ttl);
    Some(())
}

/// Writes down a block of tokens.
fn fence(record: &mut Record, first: Token, tokens: TokenCount) -> Outcome {
    let Some(last) = token::block_last(first, tokens) else {
        return Outcome::Exhausted;
    };
    match record.last_token {
        // Written before. Nobody else can have written it: the lock was held all the time.
        Some(before) if before == last => Outcome::Fenced,
        Some(before) if before >= first => Outcome::Outdated,
        _ => {
            record.last_token = Some(last);
            Outcome::Fenced
        }
    }
}

/// Takes the next block of tokens.
fn reserve(record: &mut Record, now: StoreTime, tokens: TokenCount) -> Option<Token> {
    let first = token::next_block(record.last_token, now, tokens)?;
    record.last_token = token::block_last(first, tokens);
    Some(first)
}

fn own(record: &mut Record, lease: LeaseId) -> Option<&mut RecordHolder> {
    record.hold.as_mut().filter(|hold| hold.lease == lease)
}

#[cfg(test)]
mod tests;
