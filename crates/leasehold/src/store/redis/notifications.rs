//! Passes the messages of a server on to the clients as events.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use leasehold_core::record::Run;
use leasehold_core::{ClientId, Grant, LeaseId, Notice, StoreTime, Token, Ttl};
use redis::{PushInfo, PushKind, Value};

use super::annotations;
use super::keys::{channel, parse_channel, parse_record, split_record};
use super::observers::ServerObservers;
use crate::Error;
use crate::store::api::{Event, EventScope, Key, Keyspace, Listener, Request, WakeupMode};
use crate::store::lock::lock;

type Table = HashMap<ClientId, (Keyspace, Weak<dyn Listener>)>;

/// The clients of a connection and their listeners.
#[derive(Debug, Default)]
pub(super) struct Notifications {
    table: Mutex<Table>,
    /// Increases with every change of the table. With the first observer it is one more, so that a connection knows when to update its subscriptions.
    version: AtomicU64,
    /// How they are woken. `None`: not known yet.
    wakeup_mode: Mutex<Option<WakeupMode>>,
    /// The namespaces in which they may not acquire locks: they cannot be notified, while others can.
    denied: Mutex<HashMap<String, Error>>,
    /// The id of the node of a cluster. Empty without a cluster.
    node: String,
    /// Whether queues are not used, whatever the server can do.
    queueless: bool,
    /// The observers of names. The nodes of a cluster share them.
    observers: Arc<ServerObservers>,
}

impl Notifications {
    /// For a node of a cluster.
    pub(super) fn of_node(node: String, observers: &Arc<ServerObservers>) -> Self {
        Self {
            node,
            observers: Arc::clone(observers),
            ..Self::default()
        }
    }

    /// For one of many masters, which keep no queues.
    pub(super) fn without_queue() -> Arc<Self> {
        Arc::new(Self {
            queueless: true,
            ..Self::default()
        })
    }

    /// The observers of names.
    pub(super) fn observers(&self) -> &Arc<ServerObservers> {
        &self.observers
    }

    /// Whether queues are not used.
    pub(super) fn queueless(&self) -> bool {
        self.queueless
    }

    /// Whether a refused client may join a queue: it would be notified of its grant.
    pub(super) fn queues(&self) -> bool {
        !self.queueless && self.wakeup_mode() == WakeupMode::Grants
    }

    /// The id of the node of a cluster. Empty without a cluster.
    pub(super) fn node(&self) -> &str {
        &self.node
    }

    /// The channels of a client: that of this node, and in a cluster also that of all nodes.
    pub(super) fn channels(&self, space: &Keyspace, client: ClientId) -> Vec<String> {
        let own = self.node.as_str();
        let nodes = std::iter::once(own).chain((!own.is_empty()).then_some(""));
        nodes.map(|node| channel(space, client, node)).collect()
    }

    pub(super) fn add(&self, space: &Keyspace, client: ClientId, listener: Weak<dyn Listener>) {
        lock(&self.table).insert(client, (space.clone(), listener));
        self.changed();
    }

    /// Removes a client and returns its keyspace, if it was there.
    pub(super) fn remove(&self, client: ClientId) -> Option<Keyspace> {
        let (space, _) = lock(&self.table).remove(&client)?;
        self.changed();
        Some(space)
    }

    pub(super) fn has(&self, client: ClientId) -> bool {
        lock(&self.table).contains_key(&client)
    }

    pub(super) fn version(&self) -> u64 {
        // The first observer needs the tracking of keys.
        self.version.load(Ordering::Acquire) + u64::from(self.observers.in_use())
    }

    /// The clients, without those whose listener was dropped.
    pub(super) fn clients(&self) -> Vec<(ClientId, Keyspace)> {
        let mut table = lock(&self.table);
        table.retain(|_, (_, listener)| listener.strong_count() > 0);
        let clients = table.iter();
        clients
            .map(|(client, (space, _))| (*client, space.clone()))
            .collect()
    }

    /// How refused clients are woken. Optimistic until it is known.
    pub(super) fn wakeup_mode(&self) -> WakeupMode {
        lock(&self.wakeup_mode).unwrap_or(WakeupMode::Grants)
    }

    /// Sets how refused clients are woken, and returns whether that is a change.
    pub(super) fn set_wakeup_mode(&self, mode: WakeupMode) -> bool {
        lock(&self.wakeup_mode).replace(mode) != Some(mode)
    }

    /// Why a request may not acquire its lock, if that is known.
    pub(super) fn denied(&self, request: &Request) -> Option<Error> {
        if !request.acquires() {
            return None;
        }
        let namespace = request.key.space.namespace().as_str();
        lock(&self.denied).get(namespace).cloned()
    }

    /// Sets the namespaces in which no lock may be acquired.
    pub(super) fn set_denied(&self, denied: HashMap<String, Error>) {
        *lock(&self.denied) = denied;
    }

    /// Causes the subscriptions to be repeated that these requests need and that were denied: the permission may
    /// have been granted meanwhile.
    pub(super) fn retry_denied(&self, requests: &[Request]) {
        if requests
            .iter()
            .any(|request| self.denied(request).is_some())
        {
            self.changed();
        }
    }

    /// Handles a push, and returns the lock that it granted. An invalid push is ignored.
    pub(super) fn handle_push(&self, push: &PushInfo) -> Option<(Key, LeaseId)> {
        match (&push.kind, push.data.as_slice()) {
            (PushKind::Message, [Value::BulkString(channel), Value::BulkString(message)]) => {
                return self.handle_message(channel, message);
            }
            // All keys were deleted.
            (PushKind::Invalidate, [Value::Nil]) => self.interrupted(),
            (PushKind::Invalidate, [Value::Array(keys)]) => {
                for key in keys {
                    match key {
                        Value::BulkString(key) => self.handle_change(key),
                        other => tracing::debug!(?other, "an invalidation without a key"),
                    }
                }
            }
            (PushKind::Subscribe | PushKind::Unsubscribe | PushKind::Disconnection, _) => {}
            (kind, data) => tracing::debug!(?kind, ?data, "an unknown push"),
        }
        None
    }

    /// Handles a message on the channel of a client, and returns the lock that it granted.
    pub(super) fn handle_message(&self, channel: &[u8], message: &[u8]) -> Option<(Key, LeaseId)> {
        // A message of the connection to itself, which checks its permission.
        if message.is_empty() {
            return None;
        }
        let own = parse_channel(channel, &self.node);
        let addressee = own.or_else(|| parse_channel(channel, ""));
        let parsed = addressee.and_then(|(namespace, client)| {
            let space = lock(&self.table)
                .get(&client)
                .map(|(space, _)| space.clone())?;
            let ours = space.namespace().as_str() == namespace;
            parse_notice(&space, client, message).filter(|_| ours)
        });
        let Some((key, notice)) = parsed else {
            let (channel, message) = (channel.escape_ascii(), message.escape_ascii());
            tracing::debug!(%channel, %message, "a message for an unknown client, or an invalid one");
            return None;
        };
        let lease = notice.lease();
        let granted = match notice {
            Notice::Granted(_) if own.is_some() => Some((key.clone(), lease)),
            _ => None,
        };
        self.notify(
            lease.client,
            match own {
                Some(_) => Event::Notice(key, notice),
                None => missed(key, notice),
            },
        );
        granted
    }

    /// Notifies the observers of a name, and the clients of its keyspace, that a key was changed.
    fn handle_change(&self, key: &[u8]) {
        self.observers.notify_of(key);
        self.notify_all(|space| Some(Event::Changed(space.key(parse_record(space, key)?))));
    }

    /// Notifies the clients of a keyspace that a record was changed.
    pub(super) fn notify_changed(&self, key: &Key) {
        self.notify_all(|space| (*space == key.space).then(|| Event::Changed(key.clone())));
    }

    /// Notifies all clients and observers that events may have been missed.
    pub(super) fn interrupted(&self) {
        self.observers.notify_all();
        self.notify_all(|_| Some(Event::Interrupted(EventScope::Store)));
    }

    /// Notifies a client. If its listener was dropped, the client is removed, so that the next batch unsubscribes
    /// from its channel.
    pub(super) fn notify(&self, client: ClientId, event: Event) {
        let Some(listener) = lock(&self.table)
            .get(&client)
            .map(|(_, listener)| listener.clone())
        else {
            return;
        };
        match listener.upgrade() {
            Some(listener) => listener.notify(event),
            None => drop(self.remove(client)),
        }
    }

    /// Notifies every client of the event in its keyspace, if there is one.
    fn notify_all(&self, event_in: impl Fn(&Keyspace) -> Option<Event>) {
        let events: Vec<(Arc<dyn Listener>, Event)> = {
            let table = lock(&self.table);
            let events = table.values().filter_map(|(space, listener)| {
                let event = event_in(space)?;
                Some((listener.upgrade()?, event))
            });
            events.collect()
        };
        // Not under the lock: a listener may hold the last reference to something that unsubscribes a client.
        for (listener, event) in events {
            listener.notify(event);
        }
    }

    fn changed(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }
}

/// The event of a notice that its client did not receive from the node of the record: its slot map is outdated.
/// A grant was withdrawn.
fn missed(key: Key, notice: Notice) -> Event {
    match notice {
        Notice::Granted(_) | Notice::Next { .. } | Notice::Complete { .. } => {
            Event::Moved(EventScope::Record(key))
        }
        Notice::Revoked { .. } => Event::Changed(key),
    }
}

/// Parses a message of the script: number of the lease, first token, ttl in ms, time in microseconds, record, and behind it
/// a run or a completion. The head of the queue has no token, and a lease without ttl was revoked, or its run is complete.
fn parse_notice(space: &Keyspace, client: ClientId, message: &[u8]) -> Option<(Key, Notice)> {
    let mut parts = str::from_utf8(message).ok()?.splitn(5, ' ');
    let mut number = || -> Option<u64> {
        let digits = parts.next()?;
        let plain = digits.bytes().all(|digit| digit.is_ascii_digit());
        digits.parse().ok().filter(|_| plain)
    };
    let lease = LeaseId {
        client,
        number: number()?,
    };
    let (first, ttl, now) = (number()?, number()?, number()?);
    let (record, about) = split_record(parts.next()?)?;
    let about = match about {
        "" => None,
        about => Some(about.strip_prefix(' ')?),
    };
    let notice = match (first, ttl, about) {
        (0, 0, None) => Notice::Revoked { lease },
        (0, 0, Some(note)) => Notice::Complete {
            lease,
            note: annotations::parse_text(note)?,
        },
        (0, ttl, None) => Notice::Next {
            lease,
            ttl: Ttl::from_millis(ttl)?,
        },
        (first, ttl, run) => Notice::Granted(Grant {
            lease,
            ttl: Ttl::from_millis(ttl)?,
            first: Token::new(first)?,
            now: StoreTime::from_micros(now),
            run: match run {
                Some(run) => Some(parse_run(run)?),
                None => None,
            },
        }),
    };
    let name = parse_record(space, record.as_bytes())?;
    Some((space.key(name), notice))
}

/// Parses a run: when it was asked for, and the last completion if there is one.
fn parse_run(run: &str) -> Option<Run> {
    let (requested_at, last) = match run.split_once(' ') {
        Some((requested_at, last)) => (requested_at, Some(annotations::parse_text(last)?)),
        None => (run, None),
    };
    let requested_at = StoreTime::from_micros(requested_at.parse().ok()?);
    Some(Run { requested_at, last })
}

#[cfg(test)]
mod tests;
