//! The rule of a mutex: what one operation does to the record of one name.
//!
//! [`apply`] is the only truth. The memory store and `SQLite` call it; the Redis script is compared
//! with it, operation by operation, on random histories.
//!
//! Two properties make every operation safe to send again:
//!
//! * A lease id stands for one acquisition, so a late message can only speak of its own grant.
//! * Hold counts are absolute. Whoever enters twice says "two", not "one more".
//!
//! And a third one makes their order harmless: only the last release and a revocation shorten a
//! lease. A request that runs late, after one with a longer ttl, takes nothing away from a holder
//! who was told of the longer one.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::id::LeaseId;
use crate::time::{StoreTime, Ttl};
use crate::token::{self, Token, TokenCount};

/// What a store remembers of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Who holds it. May have expired: ask [`Record::holder`].
    pub hold: Option<Hold>,
    /// The last token given out under this name.
    pub last_token: Option<Token>,
}

/// A grant, as it stands in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The lease that holds the lock.
    pub lease: LeaseId,
    /// How many holds the client has on it.
    pub count: NonZeroU32,
    /// When it ends unless it is renewed.
    pub expires_at: StoreTime,
}

impl Hold {
    /// Keeps the lease for `ttl` from now, or as long as it is kept already.
    fn keep(&mut self, now: StoreTime, ttl: Ttl) {
        self.expires_at = self.expires_at.max(now.after(ttl));
    }
}

impl Record {
    /// The holder at `now`; an expired one is none.
    #[must_use]
    pub fn holder(&self, now: StoreTime) -> Option<&Hold> {
        self.hold.as_ref().filter(|hold| now < hold.expires_at)
    }
}

/// What can be asked of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Take the lock, or, as its holder, set the hold count and start the ttl anew.
    Acquire {
        /// The lease that shall hold it.
        lease: LeaseId,
        /// The hold count wanted.
        count: NonZeroU32,
        /// How long the store keeps it.
        ttl: Ttl,
        /// How many tokens to reserve.
        tokens: TokenCount,
    },
    /// Start the ttl anew.
    Renew {
        /// The lease that holds the lock.
        lease: LeaseId,
        /// How long the store keeps it, from now, if that is longer than it does already.
        ttl: Ttl,
    },
    /// Set the hold count; at 0 the lock is free.
    Release {
        /// The lease that holds the lock.
        lease: LeaseId,
        /// The hold count that remains.
        count: u32,
        /// How long the store keeps it, from now, if a hold remains and that is longer than it does
        /// already.
        ttl: Ttl,
    },
    /// Free the lock whoever holds it: an operator's decision.
    Revoke,
}

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    },
    /// The ttl starts anew.
    Renewed,
    /// The hold count is set; at 0 the lock is free.
    Released {
        /// The hold count that remains.
        count: u32,
    },
    /// The lease does not hold the lock (any more).
    Lost,
    /// The lock is free now.
    Revoked {
        /// The lease that was cut off, if there was one.
        cut_off: Option<LeaseId>,
    },
    /// There is no larger token left: somebody else has written the counter.
    Exhausted,
}

/// Applies one operation to a record at the store's time `now`.
pub fn apply(record: &mut Record, op: &Op, now: StoreTime) -> Outcome {
    record.hold = record.holder(now).copied();
    match *op {
        Op::Acquire {
            lease,
            count,
            ttl,
            tokens,
        } => acquire(record, now, lease, count, ttl, tokens),
        Op::Renew { lease, ttl } => match own(record, lease) {
            Some(hold) => {
                hold.keep(now, ttl);
                Outcome::Renewed
            }
            None => Outcome::Lost,
        },
        Op::Release { lease, count, ttl } => match own(record, lease) {
            Some(hold) => {
                match NonZeroU32::new(count) {
                    Some(count) => {
                        hold.count = count;
                        hold.keep(now, ttl);
                    }
                    None => record.hold = None,
                }
                Outcome::Released { count }
            }
            None => Outcome::Lost,
        },
        Op::Revoke => Outcome::Revoked {
            cut_off: record.hold.take().map(|hold| hold.lease),
        },
    }
}

fn acquire(
    record: &mut Record,
    now: StoreTime,
    lease: LeaseId,
    count: NonZeroU32,
    ttl: Ttl,
    tokens: TokenCount,
) -> Outcome {
    let known = match &record.hold {
        Some(hold) if hold.lease != lease => {
            return Outcome::Refused {
                left: now.until(hold.expires_at),
            };
        }
        // Asked again: the counter still ends with the block of this grant, unless it was lost.
        Some(_) => record
            .last_token
            .and_then(|last| token::block_first(last, tokens)),
        None => None,
    };
    let first = match known {
        Some(first) => first,
        None => {
            let Some(first) = token::next_block(record.last_token, now, tokens) else {
                return Outcome::Exhausted;
            };
            record.last_token = token::block_last(first, tokens);
            first
        }
    };
    let mut hold = Hold {
        lease,
        count,
        expires_at: record.hold.map_or(now, |own| own.expires_at),
    };
    hold.keep(now, ttl);
    record.hold = Some(hold);
    Outcome::Granted { first }
}

fn own(record: &mut Record, lease: LeaseId) -> Option<&mut Hold> {
    record.hold.as_mut().filter(|hold| hold.lease == lease)
}

#[cfg(test)]
mod tests;
