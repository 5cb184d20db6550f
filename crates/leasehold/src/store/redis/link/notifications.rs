//! Passes the messages of a server on to the clients as events.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use leasehold_core::record::{LeaseKind, Run};
use leasehold_core::{ClientId, Grant, LeaseId, Notice, StoreTime, Token, Ttl};
use redis::{PushInfo, PushKind, Value};

use super::clients::Clients;
use crate::Error;
use crate::store::api::{Event, EventScope, Key, Keyspace, Request, Shard, WakeupMode};
use crate::store::lock::lock;
use crate::store::redis::wire::keys::{channel, parse_channel, parse_key};
use crate::store::redis::wire::note;

/// What a server sends to the clients of a store.
#[derive(Debug, Default)]
pub(crate) struct Notifications {
    /// The clients, and the observers of names. The nodes of a cluster share them.
    pub(crate) clients: Arc<Clients>,
    /// Increases when the subscriptions are to be repeated.
    repeats: AtomicU64,
    /// How they are woken. `None`: not known yet.
    wakeup_mode: Mutex<Option<WakeupMode>>,
    /// The namespaces in which they may not acquire locks: they cannot be notified, while others can.
    denied: Mutex<HashMap<String, Error>>,
    /// The node of a cluster.
    node: Option<NodeIdentity>,
    /// Whether queues are not used, whatever the server can do.
    pub(crate) queueless: bool,
}

/// A node of a cluster: a grant of it counts as long as it owns the slot.
#[derive(Debug)]
pub(crate) struct NodeIdentity {
    pub(crate) id: String,
    pub(crate) shard: Shard,
    pub(crate) owners: Arc<dyn Owners>,
}

/// The owner of each name in a cluster.
pub(crate) trait Owners: Debug + Send + Sync {
    /// The shard that has a name.
    fn shard(&self, key: &Key) -> Option<Shard>;
}

impl Notifications {
    /// For a node of a cluster.
    pub(crate) fn of_node(node: NodeIdentity, clients: &Arc<Clients>) -> Arc<Self> {
        Arc::new(Self {
            node: Some(node),
            clients: Arc::clone(clients),
            ..Self::default()
        })
    }

    /// For one of many masters, which keep no queues.
    pub(crate) fn without_queue() -> Arc<Self> {
        Arc::new(Self {
            queueless: true,
            ..Self::default()
        })
    }

    /// Whether a refused client may join a queue: it would be notified of its grant.
    pub(crate) fn queues(&self) -> bool {
        !self.queueless && self.wakeup_mode() == WakeupMode::Grants
    }

    /// The id of the node of a cluster. Empty without a cluster.
    pub(crate) fn node(&self) -> &str {
        self.node.as_ref().map_or("", |node| &node.id)
    }

    /// The channels of a client: that of this node, and in a cluster also that of all nodes.
    pub(crate) fn channels(&self, space: &Keyspace, client: ClientId) -> Vec<String> {
        let own = self.node();
        let nodes = std::iter::once(own).chain((!own.is_empty()).then_some(""));
        nodes.map(|node| channel(space, client, node)).collect()
    }

    /// Increases when the subscriptions are to be updated.
    pub(crate) fn version(&self) -> u64 {
        self.clients.version() + self.repeats.load(Ordering::Acquire)
    }

    /// How refused clients are woken. Optimistic until it is known.
    pub(crate) fn wakeup_mode(&self) -> WakeupMode {
        lock(&self.wakeup_mode).unwrap_or(WakeupMode::Grants)
    }

    /// Sets how refused clients are woken, and returns whether that is a change.
    pub(crate) fn set_wakeup_mode(&self, mode: WakeupMode) -> bool {
        lock(&self.wakeup_mode).replace(mode) != Some(mode)
    }

    /// Why a request may not acquire its lock, if that is known.
    pub(crate) fn denied(&self, request: &Request) -> Option<Error> {
        if !request.acquires() {
            return None;
        }
        let namespace = request.key.space.namespace().as_str();
        lock(&self.denied).get(namespace).cloned()
    }

    /// Sets the namespaces in which no lock may be acquired.
    pub(crate) fn set_denied(&self, denied: HashMap<String, Error>) {
        *lock(&self.denied) = denied;
    }

    /// Causes the subscriptions to be repeated that these requests need and that were denied: the permission may
    /// have been granted meanwhile.
    pub(crate) fn retry_denied(&self, requests: &[Request]) {
        if requests
            .iter()
            .any(|request| self.denied(request).is_some())
        {
            self.repeats.fetch_add(1, Ordering::Release);
        }
    }

    /// Handles a push, and returns the mutex that it granted. An invalid push is ignored.
    pub(crate) fn handle_push(&self, push: &PushInfo) -> Option<(Key, LeaseId)> {
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

    /// Handles a message on the channel of a client, and returns the mutex that it granted.
    pub(crate) fn handle_message(&self, channel: &[u8], message: &[u8]) -> Option<(Key, LeaseId)> {
        // A message of the connection to itself, which checks its permission.
        if message.is_empty() {
            return None;
        }
        let own = parse_channel(channel, self.node());
        let addressee = own.or_else(|| parse_channel(channel, ""));
        let parsed = addressee.and_then(|(namespace, client)| {
            let space = self.clients.space(client)?;
            let ours = space.namespace().as_str() == namespace;
            parse_notice(client, message).filter(|(key, ..)| ours && key.space == space)
        });
        let Some((key, notice, kind)) = parsed else {
            let (channel, message) = (channel.escape_ascii(), message.escape_ascii());
            tracing::debug!(%channel, %message, "a message for an unknown client, or an invalid one");
            return None;
        };
        let lease = notice.lease();
        let granted = match notice {
            Notice::Granted(_) if own.is_some() && kind == LeaseKind::Mutex => {
                Some((key.clone(), lease))
            }
            _ => None,
        };
        let event = match own {
            Some(_) => self.counted(key, notice),
            None => missed(key, notice),
        };
        self.clients.notify(lease.client, event);
        granted
    }

    /// The event of a notice of this server. A grant has the time of this node, but the request may have been applied by
    /// another one, which owns the slot now.
    fn counted(&self, key: Key, notice: Notice) -> Event {
        match (&self.node, &notice) {
            (Some(node), Notice::Granted(_)) if node.owners.shard(&key) != Some(node.shard) => {
                Event::Moved(EventScope::Record(key))
            }
            _ => Event::Notice(key, notice),
        }
    }

    /// Notifies the observers of the name that has a key, and if that is its record the clients of its keyspace.
    fn handle_change(&self, key: &[u8]) {
        if let Some((key, suffix)) = parse_key(key) {
            self.clients.observers.notify(&key);
            if suffix.is_empty() {
                self.notify_changed(&key);
            }
        }
    }

    /// Notifies the clients of a keyspace that a record was changed.
    pub(crate) fn notify_changed(&self, key: &Key) {
        self.clients.notify_all(&Event::Changed(key.clone()));
    }

    /// Notifies all clients and observers that events may have been missed.
    pub(crate) fn interrupted(&self) {
        let scope = match &self.node {
            Some(node) => EventScope::Shard(node.shard),
            None => EventScope::Store,
        };
        self.clients.observers.notify_all();
        self.clients.notify_all(&Event::Interrupted(scope));
    }
}

/// The event of a notice that its client did not receive from the node of the record: its slot map is outdated.
/// A grant was withdrawn.
fn missed(key: Key, notice: Notice) -> Event {
    match notice {
        Notice::Granted(_) | Notice::Next { .. } | Notice::Complete { .. } => {
            Event::Moved(EventScope::Record(key))
        }
        // A holder of permits does not check because of a change.
        Notice::Revoked { .. } => Event::Interrupted(EventScope::Record(key)),
    }
}

/// Parses a message of the script: number of the lease, first token, ttl in ms, time in microseconds, record, and behind it
/// a run or a completion. The head of the queue has no token, and a lease without ttl was revoked, or its run is complete.
/// Behind the token of a grant of permits is their number, and behind that the number of the lease and the floor if it has one.
fn parse_notice(client: ClientId, message: &[u8]) -> Option<(Key, Notice, LeaseKind)> {
    let parts: Vec<_> = str::from_utf8(message).ok()?.splitn(5, ' ').collect();
    let [number, token, ttl, now, record] = parts[..] else {
        return None;
    };
    let (first, kind, numbered) = match token.split_once(['x', 'y']) {
        Some((first, share)) => {
            let numbers: Option<Vec<_>> = share.split('#').map(parse_number).collect();
            let numbered = match numbers?[..] {
                [_] => None,
                [_, number, floor] => Some((u32::try_from(number).ok()?, Token::new(floor)?)),
                _ => return None,
            };
            let kind = match token.as_bytes()[first.len()] {
                b'x' => LeaseKind::Semaphore,
                _ => LeaseKind::RwLock,
            };
            (first, kind, numbered)
        }
        None => (token, LeaseKind::Mutex, None),
    };
    let lease = LeaseId {
        client,
        number: parse_number(number)?,
    };
    let (first, ttl, now) = (parse_number(first)?, parse_number(ttl)?, parse_number(now)?);
    let (key, about) = parse_key(record.as_bytes())?;
    let about = match about {
        "" => None,
        about => Some(about.strip_prefix(' ')?),
    };
    let notice = match (first, ttl, about) {
        (0, 0, None) => Notice::Revoked { lease },
        (0, 0, Some(note)) => Notice::Complete {
            lease,
            note: note::parse_text(note)?,
        },
        (0, ttl, None) => Notice::Next {
            lease,
            ttl: Ttl::from_millis(ttl)?,
        },
        (first, ttl, run) => Notice::Granted(Grant {
            lease,
            ttl: Ttl::from_millis(ttl)?,
            first: Token::new(first)?,
            number: numbered.map(|(number, _)| number),
            floor: numbered.map(|(_, floor)| floor),
            now: StoreTime::from_micros(now),
            run: match run {
                Some(run) => Some(parse_run(run)?),
                None => None,
            },
        }),
    };
    Some((key, notice, kind))
}

fn parse_number(digits: &str) -> Option<u64> {
    let is_plain = digits.bytes().all(|digit| digit.is_ascii_digit());
    digits.parse().ok().filter(|_| is_plain)
}

/// Parses a run: when it was asked for, and the last completion if there is one.
fn parse_run(run: &str) -> Option<Run> {
    let (requested_at, last) = match run.split_once(' ') {
        Some((requested_at, last)) => (requested_at, Some(note::parse_text(last)?)),
        None => (run, None),
    };
    let requested_at = StoreTime::from_micros(requested_at.parse().ok()?);
    Some(Run { requested_at, last })
}

#[cfg(test)]
mod tests;
