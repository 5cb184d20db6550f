//! The clients of a store that subscribed to events.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold_core::ClientId;

use super::socket::NotifySocket;
use crate::store::api::{Event, EventScope, Listener, WakeupMode};
use crate::store::lock::lock;

/// The listeners of a store. Shared by the store and its thread.
#[derive(Debug, Default)]
pub(in crate::store::sqlite) struct Listeners {
    table: Mutex<HashMap<ClientId, Subscription>>,
    /// A client was added that has no notify socket yet.
    added: AtomicBool,
    /// Notify sockets cannot be bound at this moment.
    unreachable: AtomicBool,
}

/// A listener, and the socket on which other processes reach it.
#[derive(Clone, Debug)]
pub(super) struct Subscription {
    pub(super) listener: Weak<dyn Listener>,
    /// How often it is notified that events may have been missed.
    pub(super) refresh: Option<Duration>,
    pub(super) socket: Option<Arc<NotifySocket>>,
}

impl Listeners {
    /// Subscribes a client. If `refresh` is given, its socket notifies it that often that events may have been missed.
    pub(in crate::store::sqlite) fn add(
        &self,
        client: ClientId,
        listener: Weak<dyn Listener>,
        refresh: Option<Duration>,
    ) {
        let subscription = Subscription {
            listener,
            refresh,
            socket: None,
        };
        lock(&self.table).insert(client, subscription);
        self.added.store(true, Ordering::Release);
    }

    pub(in crate::store::sqlite) fn remove(&self, client: ClientId) {
        let removed = lock(&self.table).remove(&client);
        drop(removed);
    }

    pub(in crate::store::sqlite) fn clear(&self) {
        let removed = std::mem::take(&mut *lock(&self.table));
        drop(removed);
    }

    /// How refused clients are woken. Optimistic until a socket could not be bound.
    pub(in crate::store::sqlite) fn wakeup_mode(&self) -> WakeupMode {
        if self.is_unreachable() {
            WakeupMode::Nothing
        } else {
            WakeupMode::Grants
        }
    }

    /// Notifies all clients that events may have been missed.
    pub(in crate::store::sqlite) fn interrupted(&self) {
        // Not under the lock: a listener may hold the last reference to something that unsubscribes a client.
        for (_, Subscription { listener, .. }) in self.all() {
            if let Some(listener) = listener.upgrade() {
                listener.notify(Event::Interrupted(EventScope::Store));
            }
        }
    }

    /// Whether other processes cannot reach the clients at this moment.
    pub(in crate::store::sqlite) fn is_unreachable(&self) -> bool {
        self.unreachable.load(Ordering::Relaxed)
    }

    /// Sets [`Listeners::is_unreachable`] and returns its old value.
    pub(super) fn set_unreachable(&self, unreachable: bool) -> bool {
        self.unreachable.swap(unreachable, Ordering::Relaxed)
    }

    /// Whether a client was added since the last call.
    pub(super) fn take_added(&self) -> bool {
        self.added.load(Ordering::Relaxed) && self.added.swap(false, Ordering::Acquire)
    }

    pub(super) fn all(&self) -> Vec<(ClientId, Subscription)> {
        let table = lock(&self.table);
        let subscriptions = table.iter();
        subscriptions
            .map(|(client, subscription)| (*client, subscription.clone()))
            .collect()
    }

    /// Gives a client its notify socket, unless it has unsubscribed or replaced its listener meanwhile.
    pub(super) fn set_socket(
        &self,
        client: ClientId,
        listener: &Weak<dyn Listener>,
        socket: NotifySocket,
    ) {
        let socket = Arc::new(socket);
        let old = match lock(&self.table).get_mut(&client) {
            Some(subscription) if Weak::ptr_eq(&subscription.listener, listener) => {
                subscription.socket.replace(Arc::clone(&socket))
            }
            _ => None,
        };
        drop(old);
    }

    /// Closes all notify sockets.
    pub(super) fn close_sockets(&self) {
        let subscriptions = &mut *lock(&self.table);
        let sockets = subscriptions.values_mut();
        let sockets: Vec<_> = sockets
            .map(|subscription| subscription.socket.take())
            .collect();
        drop(sockets);
    }

    /// The listener of a client of this store. `None`: the client is not one of this store. `Some(None)`: its
    /// listener was dropped.
    pub(super) fn of(&self, client: ClientId) -> Option<Option<Arc<dyn Listener>>> {
        let table = lock(&self.table);
        Some(table.get(&client)?.listener.upgrade())
    }
}
