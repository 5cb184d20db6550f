//! The connection on which the clients of this process are notified.
//!
//! Each client has a channel, and holds a shared advisory lock of its session, which shows to others that it listens. A pooler
//! that gives each transaction another session would keep both back; so a message to itself is sent first.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::ClientId;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_postgres::Notification;

use super::commit::channel;
use super::connection::Connection;
use super::error::no_notifications;
use super::queue::Pool;
use super::read::Watched;
use crate::store::api::{Event, EventScope};
use crate::store::hub::Hub;
use crate::store::sessions::{Clients, Notifier, PROBE};
use crate::{Result, random};

/// The seed of the locks of clients that listen.
const LISTENS: i64 = 3;

/// The settings of the session. A pooler that lends it to others would pass them on, so they follow the message to itself. The
/// server gives up a client that does not reply for longer, but not one that is idle (PostgreSQL 14 and later).
const SETTINGS: &str = "SET lock_timeout = 0; SET statement_timeout = 0; \
    SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; \
    SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings WHERE name = 'idle_session_timeout'";

/// How often the connection is checked, and observers read again, so that registrations are renewed.
const REFRESH: Duration = Duration::from_secs(20);

/// The notifications to the clients of this process.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) pool: Arc<Pool>,
    pub(super) hub: Arc<Hub>,
    pub(super) watched: Arc<Watched>,
}

/// An open connection, and what arrives on it.
pub(super) struct Session {
    connection: Connection,
    notifications: mpsc::UnboundedReceiver<Notification>,
    registered: BTreeSet<ClientId>,
}

impl Notifier for Listener {
    type Session = Session;

    fn store(&self) -> impl fmt::Display {
        &self.pool.address
    }

    /// Connects, and checks that notifications arrive.
    async fn begin(&self, clients: &Clients) -> Result<Session> {
        let (sender, notifications) = mpsc::unbounded_channel();
        let address = &self.pool.address;
        let hosts = address.listen.as_ref().unwrap_or(&address.hosts);
        let connection = Connection::open(&address.tls, hosts, Some(sender)).await?;
        let mut session = Session {
            connection,
            notifications,
            registered: BTreeSet::new(),
        };
        session.probe(&self.pool).await?;
        session.update(clients.wanted()).await?;
        self.watched.clear();
        clients.set_registered(session.registered.clone());
        Ok(session)
    }

    async fn serve(&self, mut session: Session, clients: &Clients) {
        let mut wanted = clients.changes();
        let mut check = Instant::now() + REFRESH;
        loop {
            tokio::select! {
                notification = session.notifications.recv() => match notification {
                    Some(notification) => self.notify(&notification),
                    None => return,
                },
                _ = wanted.changed() => {
                    let changed = wanted.borrow_and_update().clone();
                    match timeout(PROBE, session.update(changed)).await {
                        Ok(Ok(())) => clients.set_registered(session.registered.clone()),
                        _ => return,
                    }
                }
                () = tokio::time::sleep_until(check) => {
                    check = Instant::now() + REFRESH;
                    let alive = session.connection.client.check_connection();
                    if !timeout(PROBE, alive).await.is_ok_and(|alive| alive.is_ok()) {
                        return;
                    }
                    if let Some(Some(observers)) = self.hub.listener(self.pool.watcher) {
                        observers.notify(Event::Interrupted(EventScope::Store));
                    }
                }
            }
        }
    }
}

impl Listener {
    fn notify(&self, notification: &Notification) {
        let client = notification.channel().strip_prefix("leasehold_");
        let Some(client) = client.and_then(|client| client.parse().ok()) else {
            return;
        };
        let message = notification.payload().as_bytes();
        self.hub.deliver(client, message);
    }
}

impl Session {
    /// Sends a message to itself, on another connection.
    async fn probe(&mut self, pool: &Pool) -> Result<()> {
        let id = ClientId::from_random(random::bytes("the id of a connection")?);
        let own = channel(id);
        self.connection.execute(&format!("LISTEN {own}")).await?;
        let other = pool.connection().await?;
        other.execute(&format!("NOTIFY {own}")).await?;
        pool.put_back(other);
        match timeout(PROBE, self.notifications.recv()).await {
            Ok(Some(_)) => {
                let settle = format!("UNLISTEN {own}; {SETTINGS}");
                self.connection.execute(&settle).await
            }
            _ => Err(no_notifications()),
        }
    }

    /// Registers these clients, and no others.
    async fn update(&mut self, clients: BTreeSet<ClientId>) -> Result<()> {
        let lock = |client: &ClientId| format!("leasehold.key('', '', '{client}', {LISTENS})");
        let listen = |client: &ClientId| {
            [
                format!("LISTEN {}", channel(*client)),
                format!("SELECT pg_advisory_lock_shared({})", lock(client)),
            ]
        };
        let unlisten = |client: &ClientId| {
            [
                format!("SELECT pg_advisory_unlock_shared({})", lock(client)),
                format!("UNLISTEN {}", channel(*client)),
            ]
        };
        let added = clients.difference(&self.registered).flat_map(listen);
        let removed = self.registered.difference(&clients).flat_map(unlisten);
        // The lock shows that the client listens, so it comes in a transaction of its own.
        for statement in added.chain(removed).collect::<Vec<_>>() {
            self.connection.execute(&statement).await?;
        }
        self.registered = clients;
        Ok(())
    }
}
