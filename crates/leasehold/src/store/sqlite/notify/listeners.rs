//! Who listens to a store.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use leasehold_core::ClientId;

use super::socket::NotifySocket;
use crate::store::api::{Event, EventScope, Listener, WakeupMode};

/// The clients of a store that want to be told. Shared by the store and its thread.
#[derive(Debug, Default)]
pub(in crate::store::sqlite) struct Listeners {
    table: Mutex<HashMap<ClientId, Entry>>,
    /// Somebody has come who has no notify_socket yet.
    outbox: AtomicBool,
    /// Bells cannot be hung at this moment.
    deaf: AtomicBool,
}

/// One of them, and how processes elsewhere tell it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) listener: Weak<dyn Listener>,
    pub(super) notify_socket: Option<Arc<NotifySocket>>,
}

impl Listeners {
    pub(in crate::store::sqlite) fn add(&self, client: ClientId, listener: Weak<dyn Listener>) {
        let notify_socket = None;
        self.table().insert(
            client,
            Entry {
                listener,
                notify_socket,
            },
        );
        self.outbox.store(true, Ordering::Release);
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
    pub(in crate::store::sqlite) fn wakeup_mode(&self) -> WakeupMode {
        if self.is_deaf() {
            WakeupMode::Nothing
        } else {
            WakeupMode::Grants
        }
    }

    /// Tells everybody that there may have been outbox that nobody heard.
    pub(in crate::store::sqlite) fn interrupted(&self) {
        // Not under the lock: a listener may be the last to hold something that forgets a client.
        for (_, Entry { listener, .. }) in self.all() {
            if let Some(listener) = listener.upgrade() {
                listener.notify(Event::Interrupted(EventScope::Store));
            }
        }
    }

    pub(super) fn is_deaf(&self) -> bool {
        self.deaf.load(Ordering::Relaxed)
    }

    /// Notes whether notify_sockets can be hung, and gives what was noted before.
    pub(super) fn set_deaf(&self, deaf: bool) -> bool {
        self.deaf.swap(deaf, Ordering::Relaxed)
    }

    /// Whether somebody has come since the last question.
    pub(super) fn take_news(&self) -> bool {
        self.outbox.load(Ordering::Relaxed) && self.outbox.swap(false, Ordering::Acquire)
    }

    /// Everybody who listens.
    pub(super) fn all(&self) -> Vec<(ClientId, Entry)> {
        let table = self.table();
        let entries = table.iter();
        entries
            .map(|(client, entry)| (*client, entry.clone()))
            .collect()
    }

    /// Gives a client its notify_socket. If it has left meanwhile, or listens with another ear, the notify_socket is
    /// taken down again.
    pub(super) fn hang(
        &self,
        client: ClientId,
        listener: &Weak<dyn Listener>,
        notify_socket: NotifySocket,
    ) {
        let notify_socket = Arc::new(notify_socket);
        let old = match self.table().get_mut(&client) {
            Some(entry) if Weak::ptr_eq(&entry.listener, listener) => {
                entry.notify_socket.replace(Arc::clone(&notify_socket))
            }
            _ => None,
        };
        drop(old);
    }

    /// Takes all notify_sockets down.
    pub(super) fn take_bells(&self) {
        let entries = &mut *self.table();
        let notify_sockets = entries.values_mut().map(|entry| entry.notify_socket.take());
        let notify_sockets: Vec<_> = notify_sockets.collect();
        drop(notify_sockets);
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
