//! The observers of a store in this process: who is to be notified of the next change of a name.

use std::collections::HashMap;
use std::sync::Mutex;

use tokio::sync::oneshot;

use super::api::{Changed, Event, Key, Listener};
use super::lock::lock;

/// The number of names from which those without observers are removed.
const GC_MIN: usize = 64;

/// Observers by name. Each is notified once.
///
/// An observer is added before the state is read. So a change that the reading did not see notifies it.
#[derive(Debug, Default)]
pub(super) struct Observers(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    waiting: HashMap<Key, Vec<oneshot::Sender<()>>>,
    gc_at: usize,
}

impl Observers {
    /// Adds an observer of a name.
    pub(super) fn add(&self, key: &Key) -> Changed {
        let (sender, changed) = oneshot::channel();
        let mut table = lock(&self.0);
        table.collect_garbage();
        let waiting = table.waiting.entry(key.clone()).or_default();
        waiting.retain(|sender| !sender.is_closed());
        waiting.push(sender);
        changed
    }

    /// Notifies all observers of a name.
    pub(super) fn notify(&self, key: &Key) {
        let waiting = lock(&self.0).waiting.remove(key);
        for sender in waiting.into_iter().flatten() {
            // Its receiver may have been dropped.
            let _ = sender.send(());
        }
    }

    /// Notifies all observers.
    pub(super) fn notify_all(&self) {
        let waiting = std::mem::take(&mut lock(&self.0).waiting);
        for sender in waiting.into_values().flatten() {
            let _ = sender.send(());
        }
    }
}

impl Table {
    /// Removes names whose observers were dropped, whenever the table has doubled since the last time.
    fn collect_garbage(&mut self) {
        if self.waiting.len() < self.gc_at.max(GC_MIN) {
            return;
        }
        self.waiting
            .retain(|_, waiting| waiting.iter().any(|sender| !sender.is_closed()));
        self.gc_at = self.waiting.len() * 2;
    }
}

/// A store that notifies its observers by events is subscribed with this listener.
impl Listener for Observers {
    fn notify(&self, event: Event) {
        match event {
            Event::Notice(key, _) | Event::Changed(key) => Self::notify(self, &key),
            Event::Interrupted(_) | Event::Moved(_) => self.notify_all(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::api::EventScope;
    use crate::store::api::fixture::key;

    #[test]
    fn each_observer_of_a_changed_name_is_notified_once() {
        let observers = Observers::default();
        let [mut one, mut another] = [0; 2].map(|_| observers.add(&key("a")));
        let mut other = observers.add(&key("b"));
        observers.notify(&key("a"));
        assert_eq!((one.try_recv(), another.try_recv()), (Ok(()), Ok(())));
        assert!(other.try_recv().is_err());
        let mut again = observers.add(&key("a"));
        Listener::notify(&observers, Event::Changed(key("a")));
        assert_eq!(again.try_recv(), Ok(()));
        let event = Event::Interrupted(EventScope::Store);
        Listener::notify(&observers, event);
        assert_eq!(other.try_recv(), Ok(()));
    }

    #[test]
    fn dropped_observers_are_removed() {
        let observers = Observers::default();
        let kept = observers.add(&key("kept"));
        for number in 0..10_000 {
            drop(observers.add(&key(&number.to_string())));
            drop(observers.add(&key("same")));
        }
        let table = lock(&observers.0);
        assert!(table.waiting.len() <= 2 * GC_MIN);
        assert!(table.waiting[&key("same")].len() <= 2);
        drop((table, kept));
    }
}
