//! The notify sockets of the clients of this process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold_core::ClientId;

use super::socket::NotifySocket;
use crate::store::api::WakeupMode;
use crate::store::hub::Hub;
use crate::store::lock::lock;

/// The clients of a store that other processes must reach. Shared by the store and its thread.
#[derive(Debug, Default)]
pub(in crate::store::sqlite) struct Sockets {
    table: Mutex<HashMap<ClientId, Socket>>,
    /// The listeners of the clients.
    pub(super) hub: Weak<Hub>,
    /// A client was added that has no notify socket yet.
    added: AtomicBool,
    /// Notify sockets cannot be bound at this moment.
    unreachable: AtomicBool,
}

/// The socket of a client, once it is bound.
#[derive(Clone, Debug, Default)]
pub(super) struct Socket {
    /// How often the client is notified that events may have been missed.
    pub(super) refresh: Option<Duration>,
    pub(super) bound: Option<Arc<NotifySocket>>,
}

impl Sockets {
    /// The sockets of clients that listen at a hub.
    pub(in crate::store::sqlite) fn new(hub: &Arc<Hub>) -> Self {
        Self {
            hub: Arc::downgrade(hub),
            ..Self::default()
        }
    }

    /// Adds a client, whose socket may have been closed before.
    pub(in crate::store::sqlite) fn add(&self, client: ClientId) {
        lock(&self.table).entry(client).or_default();
        self.added.store(true, Ordering::Release);
    }

    /// Adds a client once, whose socket notifies it that often that events may have been missed.
    pub(in crate::store::sqlite) fn add_refreshed(&self, client: ClientId, refresh: Duration) {
        let mut table = lock(&self.table);
        let socket = table.entry(client).or_default();
        if socket.refresh.replace(refresh).is_none() {
            self.added.store(true, Ordering::Release);
        }
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
        match self.is_unreachable() {
            true => WakeupMode::Nothing,
            false => WakeupMode::Grants,
        }
    }

    /// Whether other processes cannot reach the clients at this moment.
    pub(in crate::store::sqlite) fn is_unreachable(&self) -> bool {
        self.unreachable.load(Ordering::Relaxed)
    }

    /// Sets [`Sockets::is_unreachable`] and returns its old value.
    pub(super) fn set_unreachable(&self, unreachable: bool) -> bool {
        self.unreachable.swap(unreachable, Ordering::Relaxed)
    }

    /// Whether a client was added since the last call.
    pub(super) fn take_added(&self) -> bool {
        self.added.load(Ordering::Relaxed) && self.added.swap(false, Ordering::Acquire)
    }

    pub(super) fn all(&self) -> Vec<(ClientId, Socket)> {
        let table = lock(&self.table);
        let sockets = table.iter();
        sockets
            .map(|(client, socket)| (*client, socket.clone()))
            .collect()
    }

    /// Gives a client its notify socket, unless it has unsubscribed meanwhile.
    pub(super) fn set(&self, client: ClientId, bound: NotifySocket) {
        let bound = Arc::new(bound);
        let old = match lock(&self.table).get_mut(&client) {
            Some(socket) => socket.bound.replace(Arc::clone(&bound)),
            None => None,
        };
        drop(old);
    }

    /// Closes all notify sockets.
    pub(super) fn close(&self) {
        let mut table = lock(&self.table);
        let sockets: Vec<_> = table
            .values_mut()
            .map(|socket| socket.bound.take())
            .collect();
        drop(table);
        drop(sockets);
    }
}
