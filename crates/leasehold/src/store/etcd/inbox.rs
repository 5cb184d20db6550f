//! The messages to the clients of this process.
//!
//! A session has a lease, and a watch of the messages to all clients of this process, which begins before the keys of the
//! clients show that they listen. It ends as a whole: when the watch ends, when its own messages do not arrive, when the
//! lease is lost, or when another member is used. The next one has another lease, and the clients are notified that they may
//! have missed messages.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::ClientId;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::cluster::{Cluster, OPERATIONS_MAX};
use super::connection::Stream;
use super::error::{described, no_reply};
use super::marks::Marks;
use super::messages::{
    Compare, EventsOf, EventsReply, EventsRequest, KeyEvent, Transaction, delete, put, range_end,
    text,
};
use super::routes::Route;
use crate::Result;
use crate::clock::{BootClock, Clock as _};
use crate::store::hub::Hub;
use crate::store::lock::lock;
use crate::store::sessions::{Clients, Notifier, PROBE};

/// How long a lease lasts without a renewal, and how often it is renewed.
pub(super) const TTL: Duration = Duration::from_secs(10);
const RENEWAL: Duration = Duration::from_millis(3_300);

/// How many renewals lie between two messages to itself.
const PROBES: u32 = 6;

/// The messages of one session after the other.
#[derive(Debug)]
pub(super) struct Inbox {
    cluster: Arc<Cluster>,
    hub: Arc<Hub>,
    marks: Arc<Marks>,
    /// The id of this process in keys.
    process: String,
    /// The prefix of the messages to its clients.
    inbox: String,
    /// The lease of the session.
    lease: Mutex<Option<i64>>,
    /// A message to itself has arrived.
    arrived: Notify,
}

/// A session that has begun.
pub(super) struct Session {
    lease: i64,
    /// Changes when the member of the messages is left.
    member: watch::Receiver<usize>,
    messages: Stream,
    registered: BTreeSet<ClientId>,
}

impl Notifier for Inbox {
    type Session = Session;

    fn store(&self) -> impl fmt::Display {
        &self.cluster.address
    }

    async fn begin(&self, clients: &Clients) -> Result<Session> {
        let lease = self.cluster.grant(TTL).await?.id;
        *lock(&self.lease) = Some(lease);
        let watched = EventsOf {
            key: self.inbox.clone().into(),
            range_end: range_end(&self.inbox),
        };
        let request = EventsRequest {
            create: Some(watched),
        };
        // The member may be left while this session begins.
        let member = self.cluster.current.subscribe();
        let mut messages = self.cluster.watch(&request).await?;
        let created = timeout(PROBE, messages.next()).await;
        check(&created.map_err(|_| no_reply())??)?;
        self.put_own(lease).await?;
        let mut registered = BTreeSet::new();
        let wanted = clients.wanted();
        self.register(lease, &mut registered, wanted).await?;
        clients.set_registered(registered.clone());
        Ok(Session {
            lease,
            member,
            messages,
            registered,
        })
    }

    async fn serve(&self, mut session: Session, clients: &Clients) {
        let reason = tokio::select! {
            received = self.receive(&mut session.messages) => received,
            kept = self.keep(session.lease, session.registered, clients) => kept,
            _ = session.member.changed() => Ok(()),
        };
        if let Err(error) = reason {
            tracing::debug!(%error, "the session has ended");
        }
    }

    /// Ends the session, so that nobody waits for a reaction of its clients.
    fn end(&self) {
        let lease = lock(&self.lease).take();
        if let (Some(lease), Ok(runtime)) = (lease, tokio::runtime::Handle::try_current()) {
            let cluster = Arc::clone(&self.cluster);
            runtime.spawn(async move { cluster.revoke(lease).await });
        }
    }
}

impl Inbox {
    pub(super) fn new(
        cluster: Arc<Cluster>,
        hub: Arc<Hub>,
        marks: Arc<Marks>,
        process: ClientId,
    ) -> Self {
        let process = process.to_string();
        Self {
            inbox: cluster.keys.inbox(&process),
            cluster,
            hub,
            marks,
            process,
            lease: Mutex::default(),
            arrived: Notify::new(),
        }
    }

    async fn receive(&self, messages: &mut Stream) -> Result<()> {
        loop {
            let reply = messages.next().await?;
            check(&reply)?;
            for KeyEvent { kind, pair } in reply.events {
                let Some(pair) = pair.filter(|_| kind == 0) else {
                    continue;
                };
                let key = text(&pair.key);
                match key.strip_prefix(&*self.inbox) {
                    Some("") => self.arrived.notify_waiters(),
                    Some(key) => {
                        let client = key.split_once('/').and_then(|(id, _)| id.parse().ok());
                        if let Some(client) = client {
                            self.hub.deliver(client, &pair.value);
                        }
                    }
                    None => {}
                }
            }
        }
    }

    /// Keeps the lease alive, registers clients, and checks that messages arrive.
    async fn keep(
        &self,
        lease: i64,
        mut registered: BTreeSet<ClientId>,
        clients: &Clients,
    ) -> Result<()> {
        let mut wanted = clients.changes();
        let (mut renewed, mut renewals) = (BootClock.now(), 0_u32);
        let mut next = renewed.after(RENEWAL);
        let clock = BootClock;
        loop {
            tokio::select! {
                _ = wanted.changed() => {
                    let changed = wanted.borrow_and_update().clone();
                    self.register(lease, &mut registered, changed).await?;
                    clients.set_registered(registered.clone());
                }
                () = clock.sleep_until(next) => {
                    let sent = BootClock.now();
                    next = sent.after(RENEWAL);
                    match self.cluster.keep_alive(lease).await {
                        Ok(true) => renewed = sent,
                        Ok(false) => return Ok(()),
                        Err(error) if sent.since(renewed) >= TTL => return Err(error),
                        Err(_) => continue,
                    }
                    self.marks.refresh(&self.cluster).await;
                    renewals += 1;
                    if renewals.is_multiple_of(PROBES) {
                        // Counts from here on, not only from when it is polled.
                        let arrived = self.arrived.notified();
                        self.put_own(lease).await?;
                        let arrived = timeout(PROBE, arrived).await;
                        arrived.map_err(|_| no_reply())?;
                    }
                }
            }
        }
    }

    /// Sends a message to itself. It also shows to late registrations of earlier sessions that they are late.
    async fn put_own(&self, lease: i64) -> Result<()> {
        let own = put(&self.inbox, &lease.to_string(), lease);
        let put = self.cluster.change(&Transaction::of(vec![own])).await;
        put.map(drop).map_err(|failed| failed.error)
    }

    /// Registers these clients, and no others.
    async fn register(
        &self,
        lease: i64,
        registered: &mut BTreeSet<ClientId>,
        clients: BTreeSet<ClientId>,
    ) -> Result<()> {
        let route = Route {
            process: self.process.clone(),
            lease,
        };
        let route = route.to_string();
        let key = |client: &ClientId| self.cluster.keys.client(*client);
        let added = clients.difference(registered);
        let added = added.map(|client| put(&key(client), &route, lease));
        let removed = registered.difference(&clients);
        let removed = removed.map(|client| delete(&key(client)));
        let changes: Vec<_> = added.chain(removed).collect();
        let is_own = Compare::value(&self.inbox, &lease.to_string());
        for part in changes.chunks(OPERATIONS_MAX) {
            let changes = Transaction {
                compare: vec![is_own.clone()],
                ..Transaction::of(part.to_vec())
            };
            let reply = self.cluster.change(&changes).await;
            let reply = reply.map_err(|failed| failed.error)?;
            if !reply.succeeded {
                return Err(no_reply());
            }
        }
        *registered = clients;
        Ok(())
    }
}

/// Checks that a watch goes on.
fn check(reply: &EventsReply) -> Result<()> {
    match (reply.canceled, &*reply.cancel_reason) {
        (false, _) => Ok(()),
        (true, "") => Err(described("the watch was compacted", None).error),
        (true, reason) => Err(described(reason, None).error),
    }
}
