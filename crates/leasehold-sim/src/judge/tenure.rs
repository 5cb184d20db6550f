//! The time of one holder: who has it, how long, and who was kept out by it.

use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_core::{LeaseId, Op, StoreTime, Ttl};

use super::Judge;
use super::promise::{Promise, Violation, broken};

/// The time of one holder, as the answers tell it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tenure {
    pub(super) lease: LeaseId,
    pub(super) count: NonZeroU32,
    pub(super) until: u64,
}

impl Judge {
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
    pub(super) fn tenures(&mut self, now: u64) -> (Option<Tenure>, Option<Tenure>) {
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
    pub(super) fn begin(&mut self, lease: LeaseId, count: NonZeroU32, now: u64, ttl: Ttl) {
        let until = now.saturating_add(ttl.as_millis().saturating_mul(1_000));
        let own = self.tenure.filter(|tenure| tenure.lease == lease);
        self.tenure = Some(Tenure {
            lease,
            count,
            until: own.map_or(until, |own| own.until.max(until)),
        });
    }

    pub(super) fn exclusion(
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

    pub(super) fn own(
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

    pub(super) fn refusal(
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

pub(super) fn held_by(tenure: Option<Tenure>, lease: LeaseId) -> bool {
    tenure.is_some_and(|tenure| tenure.lease == lease)
}
