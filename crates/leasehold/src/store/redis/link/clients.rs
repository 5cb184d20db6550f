//! The clients of a store in this process, whatever its servers are.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Weak};

use leasehold_core::ClientId;

use super::observers::ServerObservers;
use crate::store::api::{Event, Keyspace, Listener};
use crate::store::lock::lock;

type Table = HashMap<ClientId, (Keyspace, Weak<dyn Listener>)>;

/// The clients of a store and their listeners, and those who observe names.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    table: Mutex<Table>,
    /// Increases with every change of the table.
    version: AtomicU64,
    pub(crate) observers: ServerObservers,
}

impl Clients {
    pub(crate) fn add(&self, space: &Keyspace, client: ClientId, listener: Weak<dyn Listener>) {
        lock(&self.table).insert(client, (space.clone(), listener));
        self.version.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn remove(&self, client: ClientId) {
        let removed = lock(&self.table).remove(&client);
        if removed.is_some() {
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// Increases with every change. With the first observer it is one more, because that one needs the tracking of keys. So
    /// a connection knows when to update its subscriptions.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire) + u64::from(self.observers.in_use())
    }

    /// The clients, without those whose listener was dropped.
    pub(crate) fn all(&self) -> Vec<(ClientId, Keyspace)> {
        let mut table = lock(&self.table);
        table.retain(|_, (_, listener)| listener.strong_count() > 0);
        let clients = table.iter();
        clients
            .map(|(client, (space, _))| (*client, space.clone()))
            .collect()
    }

    /// The keyspace of a client.
    pub(crate) fn space(&self, client: ClientId) -> Option<Keyspace> {
        let table = lock(&self.table);
        table.get(&client).map(|(space, _)| space.clone())
    }

    /// Notifies a client. If its listener was dropped, the client is removed, so that the next batch unsubscribes
    /// from its channel.
    pub(crate) fn notify(&self, client: ClientId, event: Event) {
        let found = lock(&self.table).get(&client).map(|(_, it)| it.upgrade());
        match found {
            Some(Some(listener)) => listener.notify(event),
            Some(None) => self.remove(client),
            None => {}
        }
    }

    /// Notifies every client of an event. That of a change is for the clients of its keyspace.
    pub(crate) fn notify_all(&self, event: &Event) {
        let is_for = |space: &Keyspace| match event {
            Event::Changed(key) => key.space == *space,
            _ => true,
        };
        let listeners: Vec<_> = lock(&self.table)
            .values()
            .filter(|(space, _)| is_for(space))
            .filter_map(|(_, listener)| listener.upgrade())
            .collect();
        // Not under the lock: a listener may hold the last reference to something that unsubscribes a client.
        for listener in listeners {
            listener.notify(event.clone());
        }
    }
}
