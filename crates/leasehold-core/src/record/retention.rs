//! How long a store keeps a record.

use super::rows::{Body, End, Head, Row};
use crate::time::StoreTime;

impl Head {
    /// The time from which a store may remove this head, with the rows of its waiters and arrivals, unless a holder has a
    /// row. Then it shows no holder, no queue, no latch, no set limit and no revocation, and even without its counter
    /// new tokens are larger, provided that the clock does not fall back behind this time.
    #[must_use]
    pub fn kept_until(&self) -> StoreTime {
        let counter = self
            .counter
            .map(|last| StoreTime::from_micros(last.get() + 1));
        let body = match self.body {
            Body::Free => None,
            Body::Leases(leases) => {
                let earliest = leases.earliest.map(|End::At(end)| end);
                earliest.max(leases.setting.map(|setting| setting.until))
            }
            Body::Latch(latch) => Some(latch.until),
        };
        let revoked = self.revoked.map(|(_, until)| until);
        let queue = self.queue.until;
        [counter, body, revoked]
            .into_iter()
            .flatten()
            .fold(queue, StoreTime::max)
    }
}

impl Row {
    /// The time from which a store may remove this row. `None`: together with its head.
    #[must_use]
    pub const fn kept_until(&self) -> Option<StoreTime> {
        match self {
            Self::Holder(holder) => {
                let End::At(end) = holder.end;
                Some(end)
            }
            Self::Note(note) => Some(note.until),
            Self::Description(description) => Some(description.until),
            Self::Waiter(_) | Self::Arrival => None,
        }
    }
}
