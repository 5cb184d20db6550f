//! Judges: they read what was asked and what was answered, and say which promise was broken.
//!
//! They share no code with the rule, only the types of questions and answers. What they know of a
//! lease is what a reader of the promises knows: it begins with its grant, ends at its ttl and may
//! be renewed, released or revoked before.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_core::{LeaseId, Op, Outcome, StoreTime, Ttl};

/// The largest number that is exact in a Lua number, and so the largest token.
const TOKEN_MAX: u64 = (1 << 53) - 1;

/// A promise that a judge watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Promise {
    /// The times of two holders never overlap.
    Exclusion,
    /// Tokens grow in the order of grant, and one grant asked for twice has one token.
    TokenOrder,
    /// The hold count is the one that was asked for last.
    HoldCount,
    /// A lock is refused only while another holds it, and for as long as the answer says.
    Refusal,
    /// A lease is called lost only when it is.
    Loss,
    /// An answer is one that the question can have.
    Answer,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise.
    pub promise: Promise,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} broken: {}", self.promise, self.what)
    }
}

impl std::error::Error for Violation {}

/// The time of one holder, as the answers tell it.
#[derive(Clone, Copy, Debug)]
struct Tenure {
    lease: LeaseId,
    count: NonZeroU32,
    until: u64,
}

/// Reads the operations on one name in the order in which its store applied them.
#[derive(Clone, Debug)]
pub struct Judge {
    tenure: Option<Tenure>,
    last_token: u64,
    slack: u64,
}

impl Judge {
    /// A judge of a store that rounds the ends of leases by up to `slack`.
    #[must_use]
    pub fn new(slack: Duration) -> Self {
        Self {
            tenure: None,
            last_token: 0,
            slack: u64::try_from(slack.as_micros()).unwrap_or(u64::MAX),
        }
    }

    /// Reads one operation, its answer and the store's time at which it was applied.
    ///
    /// # Errors
    ///
    /// The promise that it broke.
    pub fn see(&mut self, op: &Op, outcome: &Outcome, now: StoreTime) -> Result<(), Violation> {
        let now = now.as_micros();
        let (surely, maybe) = self.tenures(now);
        match (*op, *outcome) {
            (
                Op::Acquire {
                    lease,
                    count,
                    ttl,
                    tokens,
                    wait: false,
                },
                Outcome::Granted { first },
            ) => {
                self.exclusion(surely, lease, op, now)?;
                let block = (first.get(), u64::from(tokens.get()));
                self.token_order(surely, maybe, lease, block)?;
                self.last_token = self.last_token.max(block.0 + block.1 - 1);
                self.begin(lease, count, now, ttl);
            }
            (Op::Acquire { lease, .. }, Outcome::Refused { left, .. }) => {
                self.refusal(maybe, lease, left, now)?;
            }
            (Op::Acquire { tokens, .. }, Outcome::Exhausted) => {
                let next = now.max(self.last_token + 1);
                if next + u64::from(tokens.get()) - 1 <= TOKEN_MAX {
                    return broken(Promise::TokenOrder, "exhausted with tokens left".into());
                }
            }
            (Op::Renew { lease, ttl }, Outcome::Renewed) => {
                let own = self.own(maybe, lease, op, now)?;
                self.begin(lease, own.count, now, ttl);
            }
            (Op::Release { lease, count, ttl }, Outcome::Released { count: told }) => {
                self.own(maybe, lease, op, now)?;
                if told != count {
                    return broken(Promise::HoldCount, format!("{op:?} left {told} holds"));
                }
                match NonZeroU32::new(count) {
                    Some(count) => self.begin(lease, count, now, ttl),
                    None => self.tenure = None,
                }
            }
            (Op::Renew { lease, .. } | Op::Release { lease, .. }, Outcome::Lost) => {
                if let Some(own) = surely.filter(|tenure| tenure.lease == lease) {
                    let what = format!("{op:?} at {now} called lost, but held: {own:?}");
                    return broken(Promise::Loss, what);
                }
                self.tenure = self.tenure.filter(|tenure| tenure.lease != lease);
            }
            (Op::Revoke, Outcome::Revoked { cut_off }) => {
                let known = cut_off.is_none_or(|cut_off| held_by(maybe, cut_off));
                let missed = cut_off.is_none() && surely.is_some();
                if !known || missed {
                    let what = format!("revoke at {now} cut off {cut_off:?}, held: {maybe:?}");
                    return broken(Promise::Loss, what);
                }
                self.tenure = None;
            }
            _ => {
                let what = format!("{op:?} was answered {outcome:?}");
                return broken(Promise::Answer, what);
            }
        }
        Ok(())
    }

    /// Reads who is shown as the holder at `now`, and with how many holds.
    ///
    /// # Errors
    ///
    /// The promise that it breaks.
    pub fn look(&self, shown: Option<(LeaseId, u32)>, now: StoreTime) -> Result<(), Violation> {
        let until = |tenure: &Tenure| tenure.until;
        let now = now.as_micros();
        let surely = self
            .tenure
            .filter(|tenure| now.saturating_add(self.slack) < until(tenure));
        let maybe = self
            .tenure
            .filter(|tenure| now < until(tenure).saturating_add(self.slack));
        match (shown, maybe) {
            (None, _) if surely.is_none() => Ok(()),
            (Some((lease, count)), Some(tenure))
                if (lease, count) == (tenure.lease, tenure.count.get()) =>
            {
                Ok(())
            }
            _ => broken(
                Promise::HoldCount,
                format!("shown {shown:?} at {now}, held {:?}", self.tenure),
            ),
        }
    }

    /// The tenure that surely lasts at `now`, and the one that may. One that is surely over is over
    /// for good: setting the clock back does not bring it back.
    fn tenures(&mut self, now: u64) -> (Option<Tenure>, Option<Tenure>) {
        let slack = self.slack;
        self.tenure = self
            .tenure
            .filter(|tenure| now < tenure.until.saturating_add(slack));
        let surely = self
            .tenure
            .filter(|tenure| now.saturating_add(slack) < tenure.until);
        (surely, self.tenure)
    }

    /// A lease begins, or is told a new ttl. That never ends it earlier.
    fn begin(&mut self, lease: LeaseId, count: NonZeroU32, now: u64, ttl: Ttl) {
        let until = now.saturating_add(ttl.as_millis().saturating_mul(1_000));
        let own = self.tenure.filter(|tenure| tenure.lease == lease);
        self.tenure = Some(Tenure {
            lease,
            count,
            until: own.map_or(until, |own| own.until.max(until)),
        });
    }

    fn exclusion(
        &self,
        surely: Option<Tenure>,
        lease: LeaseId,
        op: &Op,
        now: u64,
    ) -> Result<(), Violation> {
        match surely {
            Some(other) if other.lease != lease => broken(
                Promise::Exclusion,
                format!("{op:?} granted at {now}, but held: {other:?}"),
            ),
            _ => Ok(()),
        }
    }

    fn own(
        &self,
        maybe: Option<Tenure>,
        lease: LeaseId,
        op: &Op,
        now: u64,
    ) -> Result<Tenure, Violation> {
        match maybe {
            Some(own) if own.lease == lease => Ok(own),
            other => broken(
                Promise::Exclusion,
                format!("{op:?} accepted at {now}, but held: {other:?}"),
            ),
        }
    }

    fn token_order(
        &self,
        surely: Option<Tenure>,
        maybe: Option<Tenure>,
        lease: LeaseId,
        (first, count): (u64, u64),
    ) -> Result<(), Violation> {
        let last = self.last_token;
        let grown = first > last;
        // The holder that asks again is told the end of the same block, however long it says that
        // it is; a block longer than all tokens before it cannot be the same.
        let repeated = first + count - 1 == last;
        let right = if held_by(surely, lease) {
            repeated || (grown && count > last)
        } else {
            grown || (repeated && held_by(maybe, lease))
        };
        if right && (1..=TOKEN_MAX).contains(&first) {
            return Ok(());
        }
        let what = format!("{lease} got {count} tokens from {first} after {last}");
        broken(Promise::TokenOrder, what)
    }

    fn refusal(
        &self,
        maybe: Option<Tenure>,
        lease: LeaseId,
        left: Duration,
        now: u64,
    ) -> Result<(), Violation> {
        let told = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
        match maybe {
            Some(other)
                if other.lease != lease
                    && told.abs_diff(other.until.saturating_sub(now)) <= self.slack =>
            {
                Ok(())
            }
            held => broken(
                Promise::Refusal,
                format!("{lease} refused at {now} for {told} us, but held: {held:?}"),
            ),
        }
    }
}

fn held_by(tenure: Option<Tenure>, lease: LeaseId) -> bool {
    tenure.is_some_and(|tenure| tenure.lease == lease)
}

fn broken<T>(promise: Promise, what: String) -> Result<T, Violation> {
    Err(Violation { promise, what })
}

#[cfg(test)]
mod tests;
