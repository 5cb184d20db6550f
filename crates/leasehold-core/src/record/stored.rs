//! A record in memory.

use std::collections::{BTreeMap, BTreeSet};

use super::environment::Environment;
use super::rows::{Body, Change, Changes, Class, Head, Holder, Note, Part, Row, Slot, Waiter};
use super::source::{Source, Stop};
use crate::id::{ClientId, LeaseId};
use crate::latch::ArrivalId;

/// The head and the rows of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    head: Head,
    holders: BTreeMap<LeaseId, Holder>,
    /// By their places.
    waiters: BTreeMap<u64, Waiter>,
    places: BTreeMap<LeaseId, u64>,
    arrivals: BTreeSet<ArrivalId>,
    notes: BTreeMap<Slot, Note>,
}

impl Rows {
    /// The head.
    #[must_use]
    pub const fn head(&self) -> &Head {
        &self.head
    }

    /// The holders whose leases have not ended.
    pub fn holders(&self, environment: &Environment) -> impl Iterator<Item = &Holder> {
        let sole = match &self.head.body {
            Body::Leases(leases) => leases.sole.as_ref(),
            _ => None,
        };
        let holders = sole.into_iter().chain(self.holders.values());
        holders.filter(|holder| !environment.is_over(holder.end))
    }

    /// The waiters in their order, unless the queue has ended.
    pub fn waiters(&self, environment: &Environment) -> impl Iterator<Item = &Waiter> {
        let is_kept = environment.now < self.head.queue.until;
        self.waiters.values().filter(move |_| is_kept)
    }

    /// A note that has not ended.
    #[must_use]
    pub fn note(&self, slot: &Slot, environment: &Environment) -> Option<&Note> {
        let note = self.notes.get(slot);
        note.filter(|note| environment.now < note.until)
    }

    /// The record as the rule reads it, if `reaches` returns whether a client is alive.
    pub const fn source<F: FnMut(ClientId) -> bool>(&self, reaches: F) -> RowsSource<'_, F> {
        RowsSource {
            rows: self,
            reaches,
        }
    }

    /// Stores the changes of an operation.
    pub fn store(&mut self, changes: Changes) {
        self.head = changes.head.unwrap_or(self.head);
        for change in changes.rows {
            match change {
                Change::Put(part, row) => self.put(part, row),
                Change::Remove(part) => self.remove(&part),
                Change::Clear(Class::Arrivals) => self.arrivals.clear(),
                Change::Clear(Class::Waiters) => {
                    self.waiters.clear();
                    self.places.clear();
                }
            }
        }
    }

    fn put(&mut self, part: Part, row: Row) {
        match (part, row) {
            (Part::Holder(lease), Row::Holder(holder)) => {
                self.holders.insert(lease, holder);
            }
            (Part::Waiter(lease), Row::Waiter(waiter)) => {
                self.places.insert(lease, waiter.place);
                self.waiters.insert(waiter.place, waiter);
            }
            (Part::Arrival(id), Row::Arrival) => {
                self.arrivals.insert(id);
            }
            (Part::Note(slot), Row::Note(note)) => {
                self.notes.insert(slot, note);
            }
            // The rule writes no row of another class.
            _ => {}
        }
    }

    fn remove(&mut self, part: &Part) {
        match part {
            Part::Holder(lease) => {
                self.holders.remove(lease);
            }
            Part::Waiter(lease) => {
                if let Some(place) = self.places.remove(lease) {
                    self.waiters.remove(&place);
                }
            }
            Part::Arrival(id) => {
                self.arrivals.remove(id);
            }
            Part::Note(slot) => {
                self.notes.remove(slot);
            }
        }
    }
}

/// A record in memory as the rule reads it.
#[derive(Debug)]
pub struct RowsSource<'a, F> {
    rows: &'a Rows,
    reaches: F,
}

impl<F: FnMut(ClientId) -> bool> Source for RowsSource<'_, F> {
    fn head(&mut self) -> Result<Head, Stop> {
        Ok(self.rows.head)
    }

    fn row(&mut self, part: &Part) -> Result<Option<Row>, Stop> {
        let rows = self.rows;
        Ok(match part {
            Part::Holder(lease) => rows.holders.get(lease).copied().map(Row::Holder),
            Part::Waiter(lease) => {
                let place = rows.places.get(lease);
                let waiter = place.and_then(|place| rows.waiters.get(place));
                waiter.cloned().map(Row::Waiter)
            }
            Part::Arrival(id) => rows.arrivals.contains(id).then_some(Row::Arrival),
            Part::Note(slot) => rows.notes.get(slot).cloned().map(Row::Note),
        })
    }

    fn holders(&mut self) -> Result<Vec<Holder>, Stop> {
        Ok(self.rows.holders.values().copied().collect())
    }

    fn waiter_from(&mut self, place: u64) -> Result<Option<Waiter>, Stop> {
        let mut waiters = self.rows.waiters.range(place..);
        Ok(waiters.next().map(|(_, waiter)| waiter.clone()))
    }

    fn waiters_between(&mut self, from: u64, to: u64) -> Result<u32, Stop> {
        let count = self.rows.waiters.range(from..to.max(from)).count();
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    fn reaches(&mut self, client: ClientId) -> Result<bool, Stop> {
        Ok((self.reaches)(client))
    }
}
