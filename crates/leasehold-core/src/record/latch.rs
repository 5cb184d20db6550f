//! Arrivals at a latch. The head counts them, and each has a row, so an arrival touches two parts however many have
//! arrived.

use std::time::Duration;

use super::Transaction;
use super::op::{Mismatch, Outcome};
use super::rows::{Body, Change, Class, Latch, Part, Row};
use super::source::Source;
use crate::latch::{ArrivalId, LatchCount};

impl<S: Source> Transaction<'_, S> {
    /// The first arrival makes the latch. One whose id is known, or at an open latch, changes nothing. The name is free or a
    /// latch.
    pub(super) fn arrive(
        &mut self,
        id: &ArrivalId,
        count: LatchCount,
        keep: Duration,
    ) -> Result<Outcome, S::Error> {
        let until = self.environment.now.after_span(keep);
        let mut latch = match self.head.body {
            Body::Latch(latch) => latch,
            _ => Latch {
                count,
                arrived: 0,
                until,
            },
        };
        if latch.count != count {
            let (stored, requested) = (latch.count.get(), count.get());
            return Ok(Outcome::Mismatch(Mismatch::Count { stored, requested }));
        }
        let part = Part::Arrival(id.clone());
        // The rows of a latch that has ended are still there at the first arrival of the next one.
        let is_known = latch.arrived > 0 && self.source.row(&part)?.is_some();
        if !is_known && !latch.status().is_open() {
            latch.arrived += 1;
            latch.until = latch.until.max(until);
            self.head.body = Body::Latch(latch);
            self.changes.rows.push(Change::Put(part, Row::Arrival));
            self.is_visible = true;
        }
        Ok(Outcome::Arrived(latch.status()))
    }

    pub(super) fn remove_latch(&mut self) -> Outcome {
        let is_latch = matches!(self.head.body, Body::Latch(_));
        if is_latch {
            self.clear_latch();
            self.is_visible = true;
        }
        Outcome::Removed(is_latch)
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
