//! When the entries of a host are due.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::time::Instant;

/// Entries ordered by the instant at which they are due, and when their host wakes up for the first of them.
///
/// An entry keeps its own [`DueTime`], by which it is found again. There may be a million entries, so nothing is
/// kept twice.
#[derive(Debug)]
pub struct Schedule<T> {
    entries: BTreeMap<(Instant, u64), T>,
    /// When the host wakes up next. It stays when entries are removed, so that a first entry that comes and goes
    /// over and over does not wake the host each time.
    armed: Option<Instant>,
}

/// What a [`Schedule`] needs of its entries.
pub trait Scheduled {
    /// A number that no other entry of the schedule has.
    fn number(&self) -> u64;

    /// When it is due. Each entry has one of its own, for one schedule.
    fn due_time(&self) -> &DueTime;
}

/// The instant at which an entry is due. Only its schedule changes it, under the lock of the host.
#[derive(Debug, Default)]
pub struct DueTime(AtomicU64);

impl DueTime {
    /// The instant. `None`: the entry is not in a schedule.
    #[must_use]
    pub fn get(&self) -> Option<Instant> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(Instant::from_nanos(nanos)),
        }
    }

    fn set(&self, due: Option<Instant>) {
        self.0
            .store(due.map_or(0, Instant::as_nanos), Ordering::Relaxed);
    }
}

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            armed: None,
        }
    }
}

impl<T: Deref<Target: Scheduled>> Schedule<T> {
    /// Adds an entry, or moves it. Returns whether the host must be woken, since it would wake up too late.
    pub fn insert(&mut self, entry: T, due: Instant) -> bool {
        self.remove(&entry);
        // Zero means that it is not scheduled.
        let due = due.max(Instant::from_nanos(1));
        entry.due_time().set(Some(due));
        self.entries.insert((due, entry.number()), entry);
        let earlier = self.armed.is_none_or(|armed| due < armed);
        if earlier {
            self.armed = Some(due);
        }
        earlier
    }

    /// Removes an entry, if it is scheduled.
    pub fn remove(&mut self, entry: &T::Target) -> Option<T> {
        let due = entry.due_time().get()?;
        entry.due_time().set(None);
        self.entries.remove(&(due, entry.number()))
    }

    /// Removes the entry that is due first, if it is due at `now`. Returns it and when it was due.
    pub fn pop_due(&mut self, now: Instant) -> Option<(T, Instant)> {
        let first = self.entries.first_entry()?;
        let (due, _) = *first.key();
        (due <= now).then(|| {
            let entry = first.remove();
            entry.due_time().set(None);
            (entry, due)
        })
    }

    /// When the host wakes up next from now on: when the first entry is due.
    pub fn arm(&mut self) -> Option<Instant> {
        self.armed = self.entries.first_key_value().map(|((due, _), _)| *due);
        self.armed
    }

    /// All entries, in the order in which they are due.
    pub fn entries(&self) -> impl Iterator<Item = &T> {
        self.entries.values()
    }

    /// The number of entries.
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
    use std::rc::Rc;

    use super::*;

    #[derive(Default)]
    struct Entry(u64, DueTime);

    impl Scheduled for Entry {
        fn number(&self) -> u64 {
            self.0
        }

        fn due_time(&self) -> &DueTime {
            &self.1
        }
    }

    fn entry(number: u64) -> Rc<Entry> {
        Rc::new(Entry(number, DueTime::default()))
    }

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn entries_are_due_in_the_order_of_their_instants() {
        let mut schedule = Schedule::default();
        let late = entry(1);
        schedule.insert(Rc::clone(&late), at(30));
        schedule.insert(entry(2), at(10));
        schedule.insert(entry(3), at(10));
        let mut pop = |now| schedule.pop_due(at(now)).map(|(entry, due)| (entry.0, due));
        assert_eq!(pop(9), None);
        assert_eq!(pop(10), Some((2, at(10))));
        assert_eq!(pop(11), Some((3, at(10))));
        assert_eq!(pop(11), None);
        assert!(schedule.remove(&late).is_some());
        assert!(schedule.remove(&late).is_none());
        assert!(schedule.is_empty());
    }

    #[test]
    fn an_entry_that_is_inserted_again_is_moved() {
        let mut schedule = Schedule::default();
        let moved = entry(1);
        assert_eq!(moved.due_time().get(), None);
        for due in [30, 50, 0] {
            schedule.insert(Rc::clone(&moved), at(due));
            assert_eq!(schedule.len(), 1);
            assert_eq!(moved.due_time().get(), Some(at(due.max(1))));
        }
        assert!(schedule.pop_due(at(1)).is_some());
        assert_eq!(moved.due_time().get(), None);
    }

    #[test]
    fn the_host_is_woken_only_for_an_entry_that_is_due_earlier() {
        let mut schedule = Schedule::default();
        let early = entry(3);
        assert_eq!(schedule.arm(), None);
        assert!(schedule.insert(entry(1), at(30)));
        assert!(!schedule.insert(entry(2), at(40)));
        assert!(schedule.insert(Rc::clone(&early), at(20)));
        schedule.remove(&early);
        assert!(
            !schedule.insert(Rc::clone(&early), at(20)),
            "it wakes up then"
        );
        schedule.remove(&early);
        assert_eq!(schedule.arm(), Some(at(30)));
        assert!(schedule.insert(early, at(20)));
    }
}
