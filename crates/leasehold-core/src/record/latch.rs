//! Arrivals at a latch. The head counts them, and each has a row, so an arrival touches two parts however many have
//! arrived.

use std::time::Duration;

use super::Transaction;
use super::op::{Mismatch, Outcome};
use super::rows::{Body, Change, Class, Kind, Latch, Part, Row};
use super::source::Source;
use crate::latch::{ArrivalId, LatchCount};

impl<S: Source> Transaction<'_, S> {
    /// The first arrival makes the latch. One whose id is known, or at an open latch, changes nothing.
    pub(super) fn arrive(
        &mut self,
        id: &ArrivalId,
        count: LatchCount,
        keep: Duration,
    ) -> Result<Outcome, S::Error> {
        let until = self.environment.now.after_span(keep);
        let mut latch = match self.head.body {
            Body::Latch(latch) => latch,
            Body::Free => Latch {
                count,
                arrived: 0,
                until,
            },
            Body::Leases(leases) => {
                let kind = Kind::Leases(leases.kind);
                return Ok(Outcome::Mismatch(Mismatch::Kind(kind)));
            }
        };
        if latch.count != count {
            let (stored, requested) = (latch.count.get(), count.get());
            return Ok(Outcome::Mismatch(Mismatch::Count { stored, requested }));
        }
        // The rows of a latch that has ended are still there at the first arrival of the next one.
        let is_known = latch.arrived > 0 && self.source.has_arrived(id)?;
        if !is_known && !latch.status().is_open() {
            latch.arrived += 1;
            latch.until = latch.until.max(until);
            self.head.body = Body::Latch(latch);
            let part = Part::Arrival(id.clone());
            self.changes.rows.push(Change::Put(part, Row::Arrival));
            self.is_visible = true;
        }
        Ok(Outcome::Arrived(latch.status()))
    }

    pub(super) fn remove_latch(&mut self) -> Outcome {
        match self.head.body {
            Body::Leases(leases) => Outcome::Mismatch(Mismatch::Kind(Kind::Leases(leases.kind))),
            Body::Free => Outcome::Removed(false),
            Body::Latch(_) => {
                self.clear_latch();
                self.is_visible = true;
                Outcome::Removed(true)
            }
        }
    }

    pub(super) fn drop_ended_latch(&mut self) {
        if let Body::Latch(latch) = self.head.body
            && self.environment.now >= latch.until
        {
            self.clear_latch();
        }
    }

    fn clear_latch(&mut self) {
        self.head.body = Body::Free;
        self.changes.rows.push(Change::Clear(Class::Arrivals));
    }
}
