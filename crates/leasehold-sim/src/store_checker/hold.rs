//! The hold interval of a lease and the order of the tokens, as the replies state them.

use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_core::{LeaseId, Op, Outcome, StoreTime, Ttl};

use super::StoreChecker;
use super::promise::{Promise, Violation};

/// The largest number that is exact in a Lua number, and so the largest token.
const TOKEN_MAX: u64 = (1 << 53) - 1;

/// The hold interval of one lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) lease: LeaseId,
    /// Whether it was released, and is in its minimum hold.
    pub(super) is_reserved: bool,
    pub(super) first: u64,
    pub(super) count: NonZeroU32,
    pub(super) until: u64,
}

impl Hold {
    pub(super) fn new(lease: LeaseId, first: u64, count: NonZeroU32, until: u64) -> Self {
        Self {
            lease,
            is_reserved: false,
            first,
            count,
            until,
        }
    }

    /// Whether a request of this lease is one of the holder.
    pub(super) fn is_of(&self, lease: LeaseId) -> bool {
        self.lease == lease && !self.is_reserved
    }
}

impl StoreChecker {
    /// Checks the holder that an inspection returned, with its hold count, and whether it is in its minimum hold.
    ///
    /// # Errors
    ///
    /// The promise that it violates.
    pub fn inspect(
        &self,
        holder: Option<(LeaseId, u32, bool)>,
        now: StoreTime,
    ) -> Result<(), Violation> {
        let held = self.held(now.as_micros());
        let expected = held.map(|hold| (hold.lease, hold.count.get(), hold.is_reserved));
        let what = || format!("{holder:?} inspected at {now:?}, held: {:?}", self.hold);
        let checked = Promise::HoldCount.check(holder == expected);
        checked.map_err(|promise| promise.violated(what()))
    }

    /// The hold, if it lasts.
    pub(super) fn held(&self, now: u64) -> Option<Hold> {
        self.hold.filter(|hold| now < hold.until)
    }

    /// Drops a hold that is over: a clock that is set back does not bring it back.
    pub(super) fn expire(&mut self, now: u64) {
        self.hold = self.held(now);
    }

    /// A hold begins, or its ttl starts anew. That never ends it earlier.
    pub(super) fn begin(&mut self, hold: Hold, now: u64, ttl: Ttl) {
        let until = now.saturating_add(ttl.as_millis().saturating_mul(1_000));
        let until = hold.until.max(until);
        self.hold = Some(Hold { until, ..hold });
    }

    /// Checks that a request was applied for the lease that holds the lock.
    pub(super) fn check_own(&self, lease: LeaseId, now: u64) -> Result<Hold, Promise> {
        let own = self.held(now).filter(|hold| hold.is_of(lease));
        own.ok_or(Promise::Exclusion)
    }

    pub(super) fn check_refusal(
        &self,
        lease: LeaseId,
        time_left: Option<Duration>,
        now: u64,
    ) -> Result<(), Promise> {
        // A lease holds the lock, so the reply states its time.
        let is_kept = self.held(now).is_some_and(|other| {
            let expected = Duration::from_micros(other.until - now);
            !other.is_of(lease) && time_left == Some(expected)
        });
        Promise::Refusal.check(is_kept)
    }

    /// Checks and adds the block of a grant. A repeated request of the holder gets the first token of its block again.
    pub(super) fn grant_tokens(
        &mut self,
        held: Option<Hold>,
        lease: LeaseId,
        (first, count): (u64, u64),
    ) -> Result<(), Promise> {
        let has_grown = first > self.last_token;
        let own = held.filter(|hold| hold.is_of(lease));
        let is_kept = own.map_or(has_grown, |own| own.first == first);
        if has_grown {
            self.last_token = first + count - 1;
        }
        Promise::TokenOrder.check(is_kept && (1..=TOKEN_MAX).contains(&first))
    }

    /// Checks and adds a block of tokens that was chosen elsewhere.
    pub(super) fn set_tokens(&mut self, op: &Op, outcome: &Outcome) -> Result<(), Promise> {
        let Op::SetToken { first, tokens, .. } = op else {
            return Err(Promise::Reply);
        };
        let first = first.get();
        let (before, last) = (self.last_token, first + u64::from(tokens.get()) - 1);
        let is_kept = match outcome {
            _ if last > TOKEN_MAX => *outcome == Outcome::Exhausted,
            Outcome::Stored => before == last || before < first,
            Outcome::Outdated => before != last && before >= first,
            _ => false,
        };
        if *outcome == Outcome::Stored {
            self.last_token = before.max(last);
            self.hold = self.hold.map(|hold| Hold { first, ..hold });
        }
        Promise::TokenOrder.check(is_kept)
    }

    pub(super) fn is_exhausted(&self, now: u64, tokens: u64) -> bool {
        now.max(self.last_token + 1) + tokens - 1 > TOKEN_MAX
    }
}
