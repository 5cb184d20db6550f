//! The hold interval of a lease, as the replies state it.

use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_core::{LeaseId, StoreTime, Ttl};

use super::StoreChecker;
use super::promise::{Promise, Violation};

/// The hold interval of one lease. Its end is known up to the slack of the checker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) lease: LeaseId,
    pub(super) count: NonZeroU32,
    until: u64,
}

/// The hold that certainly lasts, and the one that may.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holds {
    pub(super) certain: Option<Hold>,
    pub(super) possible: Option<Hold>,
}

impl StoreChecker {
    /// Checks the holder that an inspection returned, with its hold count.
    ///
    /// # Errors
    ///
    /// The promise that it violates.
    pub fn inspect(&self, holder: Option<(LeaseId, u32)>, now: StoreTime) -> Result<(), Violation> {
        let Holds { certain, possible } = self.holds(now.as_micros());
        let expected = possible.map(|hold| (hold.lease, hold.count.get()));
        let fits = holder == expected || (holder.is_none() && certain.is_none());
        fits.then_some(()).ok_or_else(|| Violation {
            promise: Promise::HoldCount,
            what: format!("{holder:?} inspected at {now:?}, held: {:?}", self.hold),
        })
    }

    pub(super) fn holds(&self, now: u64) -> Holds {
        let until = |early: u64, late: u64| {
            let lasts = |hold: &Hold| now.saturating_add(early) < hold.until.saturating_add(late);
            self.hold.filter(lasts)
        };
        Holds {
            certain: until(self.slack, 0),
            possible: until(0, self.slack),
        }
    }

    /// Drops a hold that is certainly over: a clock that is set back does not bring it back.
    pub(super) fn expire(&mut self, now: u64) {
        self.hold = self.holds(now).possible;
    }

    /// A hold begins, or its ttl starts anew. That never ends it earlier.
    pub(super) fn begin(&mut self, lease: LeaseId, count: NonZeroU32, now: u64, ttl: Ttl) {
        let until = now.saturating_add(ttl.as_millis().saturating_mul(1_000));
        let own = self.hold.filter(|hold| hold.lease == lease);
        self.hold = Some(Hold {
            lease,
            count,
            until: own.map_or(until, |own| own.until.max(until)),
        });
    }

    /// Checks that a request was applied for the lease that holds the lock.
    pub(super) fn check_own(&self, lease: LeaseId, now: u64) -> Result<Hold, Promise> {
        let own = self.holds(now).possible.filter(|hold| hold.lease == lease);
        own.ok_or(Promise::Exclusion)
    }

    pub(super) fn check_refusal(
        &self,
        lease: LeaseId,
        time_left: Duration,
        now: u64,
    ) -> Result<(), Promise> {
        let time_left = u64::try_from(time_left.as_micros()).unwrap_or(u64::MAX);
        let held = self.holds(now).possible;
        let is_kept = held.is_some_and(|other| {
            let expected = other.until.saturating_sub(now);
            other.lease != lease && time_left.abs_diff(expected) <= self.slack
        });
        Promise::Refusal.check(is_kept)
    }
}

pub(super) fn is_held_by(hold: Option<Hold>, lease: LeaseId) -> bool {
    hold.is_some_and(|hold| hold.lease == lease)
}
