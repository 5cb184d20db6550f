//! When leases are due.

use std::collections::BTreeMap;

use crate::time::Instant;

/// Entries ordered by the instant at which they are due, and when their host wakes up for the first of them.
///
/// An entry is identified by its instant and a number, which its owner keeps. There may be a million entries, so
/// nothing is kept twice.
#[derive(Debug)]
pub struct Schedule<T> {
    entries: BTreeMap<(Instant, u64), T>,
    /// When the host wakes up next. It stays when entries are removed, so that a first entry that comes and goes
    /// over and over does not wake the host each time.
    armed: Option<Instant>,
}

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            armed: None,
        }
    }
}

impl<T> Schedule<T> {
    /// Adds an entry. Answers whether the host must be woken, since it would wake up too late.
    pub fn insert(&mut self, due: Instant, id: u64, entry: T) -> bool {
        self.entries.insert((due, id), entry);
        let earlier = self.armed.is_none_or(|armed| due < armed);
        if earlier {
            self.armed = Some(due);
        }
        earlier
    }

    /// When the host wakes up next from now on: when the first entry is due.
    pub fn arm(&mut self) -> Option<Instant> {
        self.armed = self.next();
        self.armed
    }

    /// Removes an entry.
    pub fn remove(&mut self, due: Instant, id: u64) -> Option<T> {
        self.entries.remove(&(due, id))
    }

    /// Removes the entry that is due first, if it is due at `now`.
    pub fn pop_due(&mut self, now: Instant) -> Option<T> {
        let first = self.entries.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// When the first entry is due.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.entries.first_key_value().map(|((due, _), _)| *due)
    }

    /// All entries, in the order in which they are due.
    pub fn entries(&self) -> impl Iterator<Item = &T> {
        self.entries.values()
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it has no entries.
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

    #[test]
    fn the_host_is_woken_only_for_an_entry_that_is_due_earlier() {
        let mut schedule = Schedule::default();
        assert_eq!(schedule.arm(), None);
        assert!(schedule.insert(at(30), 1, ()));
        assert!(!schedule.insert(at(40), 2, ()));
        assert!(schedule.insert(at(20), 3, ()));
        schedule.remove(at(20), 3);
        assert!(!schedule.insert(at(20), 4, ()), "it wakes up then");
        schedule.remove(at(20), 4);
        assert_eq!(schedule.arm(), Some(at(30)));
        assert!(schedule.insert(at(20), 5, ()));
    }
}
