//! Who is told what: the notifications of a store's clients, and the server's pushes as their events.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use leasehold_core::{ClientId, Grant, LeaseId, Notice, StoreTime, Token, Ttl};
use redis::{PushInfo, PushKind, Value};

use super::keys::{Channel, parse_channel, parse_record};
use crate::Error;
use crate::store::api::{Event, EventScope, Key, Keyspace, Listener, Request, WakeupMode};

type Table = HashMap<ClientId, (Keyspace, Weak<dyn Listener>)>;

/// The notifications of a store, by their clients.
#[derive(Debug, Default)]
pub(super) struct Notifications {
    table: Mutex<Table>,
    /// Grows whenever the table changes, so that a connection knows when it has to look at it.
    version: AtomicU64,
    /// How they were woken last. `None`: nobody knows yet.
    wakes: Mutex<Option<WakeupMode>>,
    /// Why none of them may take a lock of a namespace: they cannot be notified, and others can.
    denied: Mutex<HashMap<String, Error>>,
    /// The id of the node of a cluster that tells them. Empty: there is no cluster.
    node: String,
    /// Whether none of them waits in a queue, whatever the server can do.
    queueless: bool,
}

impl Notifications {
    /// Those of a node of a cluster.
    pub(super) fn of_node(node: String) -> Self {
        Self {
            node,
            ..Self::default()
        }
    }

    /// Those of one of many masters: none of them waits in its queue.
    pub(super) fn without_queue() -> Arc<Self> {
        Arc::new(Self {
            queueless: true,
            ..Self::default()
        })
    }

    /// Whether none of them waits in a queue.
    pub(super) fn queueless(&self) -> bool {
        self.queueless
    }

    /// The id of the node, if there is a cluster, else nothing.
    pub(super) fn node(&self) -> &str {
        &self.node
    }

    /// The channels on which a client is told: its own, and in a cluster that of all nodes.
    pub(super) fn channels(&self, space: &Keyspace, client: ClientId) -> Vec<String> {
        let own = self.node.as_str();
        let nodes = std::iter::once(own).chain((!own.is_empty()).then_some(""));
        let channels = nodes.map(|node| Channel {
            space,
            client,
            node,
        });
        channels.map(|channel| channel.to_string()).collect()
    }

    pub(super) fn add(&self, space: &Keyspace, client: ClientId, listener: Weak<dyn Listener>) {
        self.table().insert(client, (space.clone(), listener));
        self.changed();
    }

    /// Removes a client and gives its space, if it was there.
    pub(super) fn remove(&self, client: ClientId) -> Option<Keyspace> {
        let (space, _) = self.table().remove(&client)?;
        self.changed();
        Some(space)
    }

    pub(super) fn has(&self, client: ClientId) -> bool {
        self.table().contains_key(&client)
    }

    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Who listens, without those who are gone.
    pub(super) fn clients(&self) -> Vec<(ClientId, Keyspace)> {
        let mut table = self.table();
        table.retain(|_, (_, listener)| listener.strong_count() > 0);
        let clients = table.iter();
        clients
            .map(|(client, (space, _))| (*client, space.clone()))
            .collect()
    }

    /// How they are woken who were refused. As long as nothing is known: as it should be.
    pub(super) fn wakeup_mode(&self) -> WakeupMode {
        self.last_wakeup_mode().unwrap_or(WakeupMode::Grants)
    }

    /// Notes how they are woken from now on, and answers whether that is subscriptions.
    pub(super) fn set_wakeup_mode(&self, wakes: WakeupMode) -> bool {
        self.last_wakeup_mode().replace(wakes) != Some(wakes)
    }

    /// Why a request may not take its lock, as far as anybody knows.
    pub(super) fn denied(&self, request: &Request) -> Option<Error> {
        if !request.acquires() {
            return None;
        }
        let denied = self.denied.lock().unwrap_or_else(PoisonError::into_inner);
        denied.get(request.key.space.namespace().as_str()).cloned()
    }

    /// Notes by namespace why no lock may be taken.
    pub(super) fn set_denied(&self, denied: HashMap<String, Error>) {
        *self.denied.lock().unwrap_or_else(PoisonError::into_inner) = denied;
    }

    /// Has the server asked again for the rights that these requests need and that it refused: they may have
    /// been granted meanwhile.
    pub(super) fn retry_denied(&self, requests: &[Request]) {
        if requests
            .iter()
            .any(|request| self.denied(request).is_some())
        {
            self.changed();
        }
    }

    /// Tells what a push says, and answers which lock was granted by it. One that makes no sense is
    /// nobody's subscriptions.
    pub(super) fn hear(&self, push: &PushInfo) -> Option<(Key, LeaseId)> {
        match (&push.kind, push.data.as_slice()) {
            (PushKind::Message, [Value::BulkString(channel), Value::BulkString(message)]) => {
                return self.hear_message(channel, message);
            }
            // Everything was deleted.
            (PushKind::Invalidate, [Value::Nil]) => self.interrupted(),
            (PushKind::Invalidate, [Value::Array(keys)]) => {
                for key in keys {
                    match key {
                        Value::BulkString(key) => self.hear_change(key),
                        other => tracing::debug!(?other, "not a key that changed"),
                    }
                }
            }
            (PushKind::Subscribe | PushKind::Unsubscribe | PushKind::Disconnection, _) => {}
            (kind, data) => tracing::debug!(?kind, ?data, "a push of no known form"),
        }
        None
    }

    /// Tells a client what came on its channel, and answers which lock was granted.
    pub(super) fn hear_message(&self, channel: &[u8], message: &[u8]) -> Option<(Key, LeaseId)> {
        // What a connection tells itself to see whether it may.
        if message.is_empty() {
            return None;
        }
        let own = parse_channel(channel, &self.node);
        let told = own.or_else(|| parse_channel(channel, ""));
        let told = told.and_then(|(namespace, client)| {
            let space = self.table().get(&client).map(|(space, _)| space.clone())?;
            let ours = space.namespace().as_str() == namespace;
            parse_notice(&space, client, message).filter(|_| ours)
        });
        let Some((key, notice)) = told else {
            let (channel, message) = (channel.escape_ascii(), message.escape_ascii());
            tracing::debug!(%channel, %message, "a message for nobody, or of no known form");
            return None;
        };
        let lease = notice.lease();
        let granted = match notice {
            Notice::Granted(_) if own.is_some() => Some((key.clone(), lease)),
            _ => None,
        };
        self.tell(
            lease.client,
            match own {
                Some(_) => Event::Notice(key, notice),
                None => unheard(key, notice),
            },
        );
        granted
    }

    /// Tells whoever may be concerned that a key was changed.
    fn hear_change(&self, key: &[u8]) {
        self.tell_all(|space| Some(Event::Changed(space.key(parse_record(space, key)?))));
    }

    /// Tells whoever may be concerned that a record was changed.
    pub(super) fn tell_change(&self, key: &Key) {
        self.tell_all(|space| (*space == key.space).then(|| Event::Changed(key.clone())));
    }

    /// Tells everybody that there may have been subscriptions that nobody heard.
    pub(super) fn interrupted(&self) {
        self.tell_all(|_| Some(Event::Interrupted(EventScope::Store)));
    }

    /// Tells a client, if it still listens. One that is gone is forgotten, so that the next batch
    /// unsubscribes from its channel.
    pub(super) fn tell(&self, client: ClientId, event: Event) {
        let Some(listener) = self
            .table()
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

    /// Tells every client what is subscriptions in its space.
    fn tell_all(&self, subscriptions: impl Fn(&Keyspace) -> Option<Event>) {
        let told: Vec<(Arc<dyn Listener>, Event)> = {
            let table = self.table();
            let told = table.values().filter_map(|(space, listener)| {
                let event = subscriptions(space)?;
                Some((listener.upgrade()?, event))
            });
            told.collect()
        };
        // Not under the lock: a listener may be the last to hold something that forgets a client.
        for (listener, event) in told {
            listener.notify(event);
        }
    }

    fn changed(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }

    fn last_wakeup_mode(&self) -> MutexGuard<'_, Option<WakeupMode>> {
        self.wakes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No panic can leave it half changed: each change is one call.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is subscriptions in a notice that its client did not hear where the record is: it looks in the wrong
/// place. A grant was taken back.
fn unheard(key: Key, notice: Notice) -> Event {
    match notice {
        Notice::Granted(_) | Notice::Next { .. } => Event::Moved(EventScope::Record(key)),
        Notice::Revoked { .. } => Event::Changed(key),
    }
}

/// A notice as the script tells it: number of the lease, first token, ttl in ms, time in microseconds,
/// record. Who is the next has no token, and who was cut off has no ttl either.
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
    let notice = match (first, ttl) {
        (0, 0) => Notice::Revoked { lease },
        (0, ttl) => Notice::Next {
            lease,
            ttl: Ttl::from_millis(ttl)?,
        },
        (first, ttl) => Notice::Granted(Grant {
            lease,
            ttl: Ttl::from_millis(ttl)?,
            first: Token::new(first)?,
            now: StoreTime::from_micros(now),
        }),
    };
    let name = parse_record(space, parts.next()?.as_bytes())?;
    Some((space.key(name), notice))
}

#[cfg(test)]
mod tests;
