//! Who listens to a store.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use leasehold_core::ClientId;

use super::bell::Bell;
use crate::store::{Event, Listener, Reach, Wakes};

/// The clients of a store that want to be told. Shared by the store and its thread.
#[derive(Debug, Default)]
pub(in crate::store::sqlite) struct Listeners {
    table: Mutex<HashMap<ClientId, Entry>>,
    /// Somebody has come who has no bell yet.
    news: AtomicBool,
    /// Bells cannot be hung at this moment.
    deaf: AtomicBool,
}

/// One of them, and how processes elsewhere tell it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) listener: Weak<dyn Listener>,
    pub(super) bell: Option<Arc<Bell>>,
}

impl Listeners {
    pub(in crate::store::sqlite) fn add(&self, client: ClientId, listener: Weak<dyn Listener>) {
        let bell = None;
        self.table().insert(client, Entry { listener, bell });
        self.news.store(true, Ordering::Release);
    }

    pub(in crate::store::sqlite) fn remove(&self, client: ClientId) {
        let removed = self.table().remove(&client);
        drop(removed);
    }

    pub(in crate::store::sqlite) fn clear(&self) {
        let removed = std::mem::take(&mut *self.table());
        drop(removed);
    }

    /// How they are woken who were refused. As long as nothing is known: as it should be.
    pub(in crate::store::sqlite) fn wakes(&self) -> Wakes {
        if self.is_deaf() {
            Wakes::Nothing
        } else {
            Wakes::Grants
        }
    }

    /// Tells everybody that there may have been news that nobody heard.
    pub(in crate::store::sqlite) fn interrupted(&self) {
        // Not under the lock: a listener may be the last to hold something that forgets a client.
        for (_, Entry { listener, .. }) in self.all() {
            if let Some(listener) = listener.upgrade() {
                listener.hear(Event::Interrupted(Reach::Store));
            }
        }
    }

    pub(super) fn is_deaf(&self) -> bool {
        self.deaf.load(Ordering::Relaxed)
    }

    /// Notes whether bells can be hung, and gives what was noted before.
    pub(super) fn set_deaf(&self, deaf: bool) -> bool {
        self.deaf.swap(deaf, Ordering::Relaxed)
    }

    /// Whether somebody has come since the last question.
    pub(super) fn take_news(&self) -> bool {
        self.news.load(Ordering::Relaxed) && self.news.swap(false, Ordering::Acquire)
    }

    /// Everybody who listens.
    pub(super) fn all(&self) -> Vec<(ClientId, Entry)> {
        let table = self.table();
        let entries = table.iter();
        entries
            .map(|(client, entry)| (*client, entry.clone()))
            .collect()
    }

    /// Gives a client its bell. If it has left meanwhile, or listens with another ear, the bell is
    /// taken down again.
    pub(super) fn hang(&self, client: ClientId, listener: &Weak<dyn Listener>, bell: Bell) {
        let bell = Arc::new(bell);
        let old = match self.table().get_mut(&client) {
            Some(entry) if Weak::ptr_eq(&entry.listener, listener) => {
                entry.bell.replace(Arc::clone(&bell))
            }
            _ => None,
        };
        drop(old);
    }

    /// Takes all bells down.
    pub(super) fn take_bells(&self) {
        let entries = &mut *self.table();
        let bells = entries.values_mut().map(|entry| entry.bell.take());
        let bells: Vec<_> = bells.collect();
        drop(bells);
    }

    /// The listener of a client of this store. `None`: it is none of its clients. `Some(None)`: it
    /// is gone.
    pub(super) fn of(&self, client: ClientId) -> Option<Option<Arc<dyn Listener>>> {
        let table = self.table();
        Some(table.get(&client)?.listener.upgrade())
    }

    fn table(&self) -> MutexGuard<'_, HashMap<ClientId, Entry>> {
        // No panic can leave it half changed: each change is one call.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
