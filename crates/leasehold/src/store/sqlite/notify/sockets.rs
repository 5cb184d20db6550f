//! The notify sockets of the clients of this process.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use leasehold_core::ClientId;

use super::socket::NotifySocket;
use crate::Result;
use crate::store::hub::Hub;
use crate::store::lock::lock;

/// The clients of a store that other processes must reach. Shared by the store and its thread.
#[derive(Debug)]
pub(in crate::store::sqlite) struct Sockets {
    table: Mutex<HashMap<ClientId, BoundSocket>>,
    /// The listeners of the clients.
    pub(super) hub: Weak<Hub>,
    /// The client that is notified for the observers of the store.
    pub(in crate::store::sqlite) watcher: ClientId,
    /// A client was added that has no notify socket yet.
    added: AtomicBool,
    /// Notify sockets cannot be bound at this moment.
    unreachable: AtomicBool,
}

/// The socket of a client, once it is bound.
type BoundSocket = Option<Arc<NotifySocket>>;

impl Sockets {
    /// The sockets of the clients and observers at a hub.
    pub(in crate::store::sqlite) fn new(hub: &Arc<Hub>) -> Result<Self> {
        Ok(Self {
            table: Mutex::default(),
            hub: Arc::downgrade(hub),
            watcher: hub.add_observers()?,
            added: AtomicBool::new(false),
            unreachable: AtomicBool::new(false),
        })
    }

    /// Adds a client, whose socket may have been closed before.
    pub(in crate::store::sqlite) fn add(&self, client: ClientId) {
        lock(&self.table).entry(client).or_default();
        self.added.store(true, Ordering::Release);
    }

    /// Adds the client of the observers, unless it was added before.
    pub(in crate::store::sqlite) fn add_watcher(&self) {
        if let Entry::Vacant(socket) = lock(&self.table).entry(self.watcher) {
            socket.insert(None);
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

    /// Whether other processes can reach the clients at this moment. They can until a socket could not be bound.
    pub(in crate::store::sqlite) fn is_reachable(&self) -> bool {
        !self.unreachable.load(Ordering::Relaxed)
    }

    /// Sets whether other processes cannot reach the clients. Returns whether they could not before.
    pub(super) fn set_unreachable(&self, unreachable: bool) -> bool {
        self.unreachable.swap(unreachable, Ordering::Relaxed)
    }

    /// Whether a client was added since the last call.
    pub(super) fn take_added(&self) -> bool {
        self.added.load(Ordering::Relaxed) && self.added.swap(false, Ordering::Acquire)
    }

    pub(super) fn all(&self) -> Vec<(ClientId, BoundSocket)> {
        let table = lock(&self.table);
        let sockets = table.iter();
        sockets
            .map(|(client, socket)| (*client, socket.clone()))
            .collect()
    }

    /// Gives a client its notify socket, unless it has unsubscribed meanwhile.
    pub(super) fn set(&self, client: ClientId, bound: NotifySocket) {
        let bound = Arc::new(bound);
        let mut table = lock(&self.table);
        let socket = table.get_mut(&client);
        let old = socket.and_then(|socket| socket.replace(Arc::clone(&bound)));
        drop(table);
        drop(old);
    }

    /// Closes all notify sockets.
    pub(super) fn close(&self) {
        let mut table = lock(&self.table);
        let sockets: Vec<_> = table.values_mut().map(Option::take).collect();
        drop(table);
        drop(sockets);
    }
}
