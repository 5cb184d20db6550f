//! Which leases need attention, and when.

use std::collections::{BTreeSet, HashMap};

use crate::time::Instant;

/// Entries ordered by the instant at which they are due.
///
/// An entry is known by a number. It is due at one instant at a time, and one that was removed is
/// never handed out again.
#[derive(Debug)]
pub struct Schedule<T> {
    entries: HashMap<u64, (Instant, T)>,
    order: BTreeSet<(Instant, u64)>,
}

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            order: BTreeSet::new(),
        }
    }
}

impl<T: Clone> Schedule<T> {
    /// Adds an entry, or replaces it.
    pub fn insert(&mut self, id: u64, due: Instant, entry: T) {
        self.remove(id);
        self.order.insert((due, id));
        self.entries.insert(id, (due, entry));
    }

    /// Moves an entry to another instant. Does nothing if it was removed.
    pub fn reschedule(&mut self, id: u64, due: Instant) {
        if let Some((at, _)) = self.entries.get_mut(&id) {
            self.order.remove(&(*at, id));
            self.order.insert((due, id));
            *at = due;
        }
    }

    /// Takes an entry away.
    pub fn remove(&mut self, id: u64) -> Option<T> {
        let (due, entry) = self.entries.remove(&id)?;
        self.order.remove(&(due, id));
        Some(entry)
    }

    /// The entry that is due first, if it is due at `now`. It stays in the schedule: the caller
    /// moves it on with [`Schedule::reschedule`] or takes it away.
    #[must_use]
    pub fn first_due(&self, now: Instant) -> Option<(u64, T)> {
        let (due, id) = self.order.first()?;
        if *due > now {
            return None;
        }
        self.entries.get(id).map(|(_, entry)| (*id, entry.clone()))
    }

    /// When the first entry is due.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.order.first().map(|(due, _)| *due)
    }

    /// All entries, in no order.
    pub fn entries(&self) -> impl Iterator<Item = &T> {
        self.entries.values().map(|(_, entry)| entry)
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn entries_come_in_the_order_of_their_instants() {
        let mut schedule = Schedule::default();
        schedule.insert(1, at(30), "late");
        schedule.insert(2, at(10), "early");
        assert_eq!(schedule.next(), Some(at(10)));
        assert_eq!(schedule.first_due(at(9)), None);
        assert_eq!(schedule.first_due(at(10)), Some((2, "early")));
        schedule.reschedule(2, at(40));
        assert_eq!(schedule.first_due(at(35)), Some((1, "late")));
    }

    #[test]
    fn a_removed_entry_is_not_moved_back_in() {
        let mut schedule = Schedule::default();
        schedule.insert(1, at(30), ());
        assert_eq!(schedule.remove(1), Some(()));
        schedule.reschedule(1, at(40));
        assert!(schedule.is_empty());
        assert_eq!(schedule.next(), None);
    }
}
