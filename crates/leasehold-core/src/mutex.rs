//! The rule of a mutex: what one operation does to the record of one name.
//!
//! [`apply`] is the only truth. The memory store and `SQLite` call it; the Redis script is compared
//! with it, operation by operation, on random histories.
//!
//! Two properties make every operation safe to send again:
//!
//! * A lease id stands for one acquisition, so a late message can only speak of its own grant.
//! * RecordHolder counts are absolute. Whoever enters twice says "two", not "one more".
//!
//! And a third one makes their order harmless: only the last release and a revocation shorten a
//! lease. A request that runs late, after one with a longer ttl, takes nothing away from a holder
//! who was told of the longer one.
//!
//! Whoever is refused may wait in a queue. Whatever finds the lock free grants it to the head of the
//! queue in the same step and tells it so: the release, normally. Nobody overtakes the queue.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::id::LeaseId;
use crate::queue::{self, Queue, Waiter};
use crate::time::{StoreTime, Ttl};
use crate::token::{self, Token, TokenCount};

/// What a store remembers of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Record {
    /// Who holds it. May have expired: ask [`Record::holder`].
    pub hold: Option<RecordHolder>,
    /// The last token given out under this name.
    pub last_token: Option<Token>,
    /// Who waits. May have expired, too: [`apply`] forgets it then.
    pub queue: Queue,
}

/// A grant, as it stands in a record.
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

/// What can be asked of a record.
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
        /// How many tokens to reserve. The same for every question of one lease.
        tokens: TokenCount,
        /// Whether to wait in the queue if it is refused.
        wait: bool,
    },
    /// As its holder, set the hold count: somebody of the same client enters. Takes nothing that is
    /// not held any more.
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
    /// As its holder, write down a block of tokens that was chosen elsewhere: the lock is one of many
    /// masters. It must be larger than all before, or the one that was written last.
    SetToken {
        /// The lease that holds the lock.
        lease: LeaseId,
        /// The first token of the block.
        first: Token,
        /// How many they are.
        tokens: TokenCount,
    },
    /// Free the lock whoever holds it: an operator's decision.
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

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The lease holds the lock.
    Granted {
        /// The first of the reserved tokens. The same again if the same grant is asked for again.
        first: Token,
    },
    /// Another lease holds the lock.
    Refused {
        /// How long it holds it unless it renews or releases.
        left: Duration,
        /// How many wait before this one. `None`: it does not wait in the queue.
        place: Option<u32>,
    },
    /// The hold count is set.
    Entered {
        /// It.
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
    /// They are not: a larger one was given out before.
    Outdated,
    /// The lock is free now.
    Revoked {
        /// The lease that was cut off, if there was one.
        cut_off: Option<LeaseId>,
    },
    /// There is no larger token left: somebody else has written the counter.
    Exhausted,
}

/// How the store finds the lock of a lease that does not hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// Nobody holds it.
    Gone,
    /// Another lease holds it.
    TakenOver,
}

/// A grant to a waiter, as it is told.
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

/// What a store tells a client without being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// A waiter holds the lock.
    Granted(Grant),
    /// A waiter is the first living one behind a grant: another was granted the lock, and has it for `ttl`
    /// unless it says more. If it cannot, nobody else would notice.
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
    /// Whom it is for.
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
/// `tell` takes a notice to the client it is for and answers whether that is alive: whether its own
/// connection can be reached. A waiter that is not is passed over: when its turn comes, or when it is the
/// next behind a grant, which a living one must look after. What was told counts only if the record is kept: a store
/// that may still fail holds it back until it cannot.
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

/// Grants a free lock to the first waiter that can be told.
///
/// If that is the asker itself, it stays the head: its answer is its grant.
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
        // Without a larger token nobody is granted anything; whoever asks is told why.
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
            // A dead waiter cannot look after the grant, and by its place the others would ask too late.
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
        // Asked again: the counter still ends with the block of this grant, unless it was lost.
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

/// Only a holder renews and releases. Whoever did, and was none, waits for nothing any more. Then a
/// free lock is passed on.
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
