//! The clients and observers of a store in this process.

#[cfg(feature = "zookeeper")]
use std::collections::BTreeSet;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use leasehold_core::{ClientId, Notice};

use super::api::{Changed, Event, EventScope, Key, Listener};
use super::lock::lock;
#[cfg(any(feature = "postgres", feature = "etcd", feature = "zookeeper"))]
use super::message;
use super::observers::Observers;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "__documents"))]
use crate::{Result, random};

/// The clients of this process that listen to a store, and the observers of its names.
#[derive(Debug, Default)]
pub struct Hub {
    listeners: Mutex<HashMap<ClientId, Weak<dyn Listener>>>,
    observers: Arc<Observers>,
}

impl Hub {
    /// The listener of a client. `None`: the client is not one of this process. `Some(None)`: its listener was dropped.
    pub(super) fn listener(&self, client: ClientId) -> Option<Option<Arc<dyn Listener>>> {
        lock(&self.listeners).get(&client).map(Weak::upgrade)
    }

    pub(super) fn add(&self, client: ClientId, listener: Weak<dyn Listener>) {
        lock(&self.listeners).insert(client, listener);
    }

    /// Subscribes all observers as one new client, for a store whose other processes notify them so.
    #[cfg(any(feature = "sqlite", feature = "postgres", feature = "__documents"))]
    pub(super) fn add_observers(&self) -> Result<ClientId> {
        let client = ClientId::from_random(random::bytes("the id of an observer")?);
        let observers = Arc::downgrade(&self.observers);
        self.add(client, observers);
        Ok(client)
    }

    /// The clients that listen.
    #[cfg(feature = "zookeeper")]
    pub(super) fn clients(&self) -> BTreeSet<ClientId> {
        lock(&self.listeners).keys().copied().collect()
    }

    pub(super) fn remove(&self, client: ClientId) {
        let removed = lock(&self.listeners).remove(&client);
        drop(removed);
    }

    /// Delivers a message of another process to a client.
    #[cfg(any(feature = "postgres", feature = "etcd", feature = "zookeeper"))]
    pub(super) fn deliver(&self, client: ClientId, message: &[u8]) {
        if let Some(Some(listener)) = self.listener(client) {
            for event in message::read(message, client) {
                listener.notify(event);
            }
        }
    }

    /// Adds an observer of a name, before the name is read.
    pub(super) fn observe(&self, key: &Key) -> Changed {
        self.observers.add(key)
    }

    /// Notifies the observers of a name.
    pub(super) fn changed(&self, key: &Key) {
        self.observers.notify(key);
    }

    /// Notifies all clients and observers that events may have been missed.
    #[cfg(any(
        feature = "sqlite",
        feature = "postgres",
        feature = "etcd",
        feature = "zookeeper"
    ))]
    pub(super) fn interrupted(&self) {
        // Not under the lock: a listener may hold the last reference to something that unsubscribes a client.
        let listeners: Vec<_> = lock(&self.listeners).values().cloned().collect();
        for listener in listeners.iter().filter_map(Weak::upgrade) {
            listener.notify(Event::Interrupted(EventScope::Store));
        }
        self.observers.notify_all();
    }
}

/// The notices to clients of this process, until their transaction is committed.
#[derive(Debug)]
pub(super) struct Notices {
    hub: Arc<Hub>,
    /// The clients that were looked up: alive or not throughout a transaction.
    known: HashMap<ClientId, Option<Option<Arc<dyn Listener>>>>,
    notices: Vec<(Arc<dyn Listener>, Event)>,
}

impl Notices {
    pub(super) fn new(hub: Arc<Hub>) -> Self {
        Self {
            hub,
            known: HashMap::new(),
            notices: Vec::new(),
        }
    }

    pub(super) const fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Whether a client of this process is alive. `None`: it is not one of this process.
    pub(super) fn reaches(&mut self, client: ClientId) -> Option<bool> {
        self.listener(client).map(Option::is_some)
    }

    /// Adds a notice. Returns one to a client of another process.
    pub(super) fn add(&mut self, key: &Key, notice: Notice) -> Option<Notice> {
        let Some(listener) = self.listener(notice.lease().client).cloned() else {
            return Some(notice);
        };
        if let Some(listener) = listener {
            let event = Event::Notice(key.clone(), notice);
            self.notices.push((listener, event));
        }
        None
    }

    /// Forgets what a transaction that failed has added.
    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.notices.clear();
    }

    pub(super) fn send(self) {
        for (listener, event) in self.notices {
            listener.notify(event);
        }
    }

    /// Notifies the clients that they may have missed these notices.
    pub(super) fn interrupt(&self) {
        for (listener, event) in &self.notices {
            if let Event::Notice(key, _) = event {
                listener.notify(Event::Interrupted(EventScope::Record(key.clone())));
            }
        }
    }

    fn listener(&mut self, client: ClientId) -> Option<&Option<Arc<dyn Listener>>> {
        let hub = &self.hub;
        let known = self.known.entry(client);
        known.or_insert_with(|| hub.listener(client)).as_ref()
    }
}
