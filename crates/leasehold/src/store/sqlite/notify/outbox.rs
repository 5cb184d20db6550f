//! The notifications of one transaction, held back until it is committed.

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;

use leasehold_core::{ClientId, Notice};

use super::directory::SocketDirectory;
use super::notifier::{Notifier, Registration};
use super::socket::BYTES_MAX;
use crate::store::api::{Event, Key};
use crate::store::message;

/// The notifications of a transaction to other stores. Nothing is sent unless [`Outbox::send`] is called.
pub(in crate::store::sqlite) struct Outbox<'a> {
    notifier: &'a mut Notifier,
    /// The clients that were asked for. `None`: unreachable.
    recipients: HashMap<ClientId, Option<Remote>>,
    /// The changed names, for the clients that observe them, and the ends of their registrations.
    changes: HashMap<ClientId, BTreeMap<Key, i64>>,
    /// Whether any name is observed. `None`: unknown yet.
    has_watchers: Option<bool>,
    has_waiter: bool,
}

/// The messages to a client of another store, and a connection to its notify socket.
///
/// Each has a socket of its own: messages that one client has not read yet count against the sending socket,
/// and must not block those to others.
struct Remote {
    client: ClientId,
    socket: UnixDatagram,
    messages: Vec<String>,
}

impl<'a> Outbox<'a> {
    pub(in crate::store::sqlite) fn new(notifier: &'a mut Notifier) -> Self {
        Self {
            notifier,
            recipients: HashMap::new(),
            changes: HashMap::new(),
            has_watchers: None,
            has_waiter: false,
        }
    }

    /// Whether others can reach the clients of this store at this moment.
    pub(in crate::store::sqlite) fn is_reachable(&self) -> bool {
        self.notifier.sockets.is_reachable()
    }

    /// Whether a notice would reach a client. The reply is the same throughout the transaction.
    pub(in crate::store::sqlite) fn reaches(&mut self, client: ClientId) -> bool {
        self.recipient(client).is_some()
    }

    /// Adds a notice to its client, if it can be reached.
    pub(in crate::store::sqlite) fn add(&mut self, key: &Key, notice: Notice) {
        if let Some(remote) = self.recipient(notice.lease().client) {
            remote.add(&Event::Notice(key.clone(), notice));
        }
    }

    fn recipient(&mut self, client: ClientId) -> Option<&mut Remote> {
        let directory = &self.notifier.directory;
        let recipient = self.recipients.entry(client);
        let recipient = recipient.or_insert_with(|| Remote::connect(directory, client));
        recipient.as_mut()
    }

    /// Whether any name is observed, which is read once.
    pub(in crate::store::sqlite) fn has_watchers<E>(
        &mut self,
        read: impl FnOnce() -> Result<bool, E>,
    ) -> Result<bool, E> {
        let has_watchers = self.has_watchers.map_or_else(read, Ok)?;
        self.has_watchers = Some(has_watchers);
        Ok(has_watchers)
    }

    /// Adds the change of a name for a client of another store that observes it. Its registration ends at `until`.
    pub(in crate::store::sqlite) fn add_change(&mut self, client: ClientId, key: &Key, until: i64) {
        if client != self.notifier.sockets.watcher {
            let keys = self.changes.entry(client).or_default();
            keys.insert(key.clone(), until);
        }
    }

    /// Removes the registrations of observers that an earlier outbox could not notify.
    pub(in crate::store::sqlite) fn take_unreachable(&mut self) -> Vec<Registration> {
        std::mem::take(&mut self.notifier.unreachable)
    }

    /// A client of this store waits for messages: it has joined a queue or observes a name.
    pub(in crate::store::sqlite) const fn add_waiter(&mut self) {
        self.has_waiter = true;
    }

    /// Must be called last before the commit: after it, other processes check the sockets of the waiters.
    pub(in crate::store::sqlite) fn prepare(&mut self) {
        if self.has_waiter {
            self.notifier.bind_sockets();
        }
    }

    /// Sends everything. The transaction is committed.
    pub(in crate::store::sqlite) fn send(self) {
        for remote in self.recipients.into_values().flatten() {
            remote.send();
        }
        // Last, as there may be many observers.
        for (client, keys) in self.changes {
            let Some(mut remote) = Remote::connect(&self.notifier.directory, client) else {
                let keys = keys.into_iter();
                let unreachable = keys.map(|(key, until)| Registration { client, key, until });
                self.notifier.unreachable.extend(unreachable);
                continue;
            };
            for key in keys.into_keys() {
                remote.add(&Event::Changed(key));
            }
            remote.send();
        }
    }
}

impl Remote {
    /// Connects to the socket of a client. `None` if it cannot be reached; a socket that is closed is
    /// removed.
    fn connect(directory: &SocketDirectory, client: ClientId) -> Option<Self> {
        let connected = directory.open().and_then(|directory| {
            directory.connect(client).inspect_err(|error| {
                if error.kind() == ErrorKind::ConnectionRefused {
                    directory.remove(client);
                }
            })
        });
        match connected {
            Ok(socket) => Some(Self {
                client,
                socket,
                messages: Vec::new(),
            }),
            Err(error) => {
                tracing::debug!(%client, %error, "a client cannot be notified");
                None
            }
        }
    }

    fn add(&mut self, event: &Event) {
        message::write(&mut self.messages, event, BYTES_MAX);
    }

    /// Sends without waiting for a client that is stopped or was just killed.
    fn send(&self) {
        let send = |message: &String| self.socket.send(message.as_bytes()).map(drop);
        if let Err(error) = self.messages.iter().try_for_each(send) {
            tracing::debug!(client = %self.client, %error, "a client was not notified");
        }
    }
}
