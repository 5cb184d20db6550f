//! Leases in the order in which they are due.

use std::collections::BTreeMap;

use crate::time::Instant;

/// Entries ordered by the instant at which they are due.
///
/// An entry is identified by its instant and a number, both kept by the caller. There may be a million
/// entries, so nothing is stored twice.
#[derive(Debug)]
pub struct Schedule<T>(BTreeMap<(Instant, u64), T>);

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> Schedule<T> {
    /// Adds an entry.
    pub fn insert(&mut self, due: Instant, id: u64, entry: T) {
        self.0.insert((due, id), entry);
    }

    /// Removes an entry.
    pub fn remove(&mut self, due: Instant, id: u64) -> Option<T> {
        self.0.remove(&(due, id))
    }

    /// Removes and returns the entry that is due first, if it is due at `now`.
    pub fn pop_due(&mut self, now: Instant) -> Option<T> {
        let first = self.0.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// When the first entry is due.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.0.first_key_value().map(|((due, _), _)| *due)
    }

    /// All entries, in the order in which they are due.
    pub fn entries(&self) -> impl Iterator<Item = &T> {
        self.0.values()
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
        schedule.insert(at(30), 1, "late");
        schedule.insert(at(10), 2, "early");
        schedule.insert(at(10), 3, "early, too");
        assert_eq!(schedule.next(), Some(at(10)));
        assert_eq!(schedule.pop_due(at(9)), None);
        assert_eq!(schedule.pop_due(at(10)), Some("early"));
        assert_eq!(schedule.pop_due(at(10)), Some("early, too"));
        assert_eq!(schedule.pop_due(at(10)), None);
        assert_eq!(schedule.remove(at(30), 1), Some("late"));
        assert!(schedule.is_empty());
    }
}
