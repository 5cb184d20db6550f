//! The connection on which the clients of this process are notified.
//!
//! Each client has a channel, and holds a shared advisory lock of its session, which shows to others that it listens. A pooler
//! that gives each transaction another session would keep both back; so a message to itself is sent first.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::ClientId;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::Notification;

use super::commit::channel;
use super::connection::Connection;
use super::error::{describe, no_notifications};
use super::queue::Pool;
use crate::store::api::{Event, EventScope};
use crate::store::hub::Hub;
use crate::store::lock::lock;
use crate::store::message;
use crate::{Result, random};

/// The seed of the locks of clients that listen.
const LISTENS: i64 = 3;

/// How long the message to itself may take.
const PROBE: Duration = Duration::from_secs(2);

/// How often the connection is checked, and observers read again, so that registrations are renewed.
const REFRESH: Duration = Duration::from_secs(20);

/// The pauses between attempts to connect.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// The clients of this process that listen.
#[derive(Debug)]
pub(super) struct Listener {
    shared: Arc<Shared>,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    pool: Arc<Pool>,
    hub: Arc<Hub>,
    watcher: ClientId,
    /// The clients that are to be notified.
    wanted: watch::Sender<BTreeSet<ClientId>>,
    /// Those that are, or `None` if there is no connection.
    listening: watch::Sender<Option<BTreeSet<ClientId>>>,
}

impl Listener {
    pub(super) fn new(pool: Arc<Pool>, hub: Arc<Hub>, watcher: ClientId) -> Self {
        let shared = Shared {
            pool,
            hub,
            watcher,
            wanted: watch::Sender::new(BTreeSet::from([watcher])),
            listening: watch::Sender::new(None),
        };
        Self {
            shared: Arc::new(shared),
            task: Mutex::default(),
        }
    }

    /// Connects for the first time. An error is not final.
    pub(super) async fn start(&self) {
        let session = self.shared.open().await;
        if let Err(error) = &session {
            tracing::warn!(%error, store = %self.shared.pool.address, "waiters poll, because they cannot be notified");
        }
        let shared = Arc::clone(&self.shared);
        *lock(&self.task) = Some(tokio::spawn(shared.run(session.ok())));
    }

    /// Begins anew if the runtime of its task has ended.
    fn restart(&self) {
        let mut task = lock(&self.task);
        if task.as_ref().is_some_and(JoinHandle::is_finished) {
            *task = Some(tokio::spawn(Arc::clone(&self.shared).run(None)));
        }
    }

    pub(super) fn add(&self, client: ClientId) {
        self.shared.wanted.send_modify(|wanted| {
            wanted.insert(client);
        });
    }

    pub(super) fn remove(&self, client: ClientId) {
        self.shared.wanted.send_modify(|wanted| {
            wanted.remove(&client);
        });
    }

    /// Whether there is a connection.
    pub(super) fn is_connected(&self) -> bool {
        self.shared.listening.borrow().is_some()
    }

    /// Waits until all clients are registered. `false`: there is no connection.
    pub(super) async fn is_ready(&self) -> bool {
        self.restart();
        let is_ready = |listening: &Option<BTreeSet<ClientId>>| match listening {
            Some(listening) => listening.is_superset(&self.shared.wanted.borrow()),
            None => true,
        };
        let mut listening = self.shared.listening.subscribe();
        let found = timeout(PROBE, listening.wait_for(is_ready)).await;
        found.is_ok_and(|found| found.is_ok_and(|found| found.is_some()))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
    }
}

/// An open connection, and what arrives on it.
struct Session {
    connection: Connection,
    notifications: mpsc::UnboundedReceiver<Notification>,
    registered: BTreeSet<ClientId>,
}

/// Shows that there is no connection, however its task ends.
struct Guard<'a>(&'a Shared);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.listening.send_replace(None);
    }
}

impl Shared {
    /// Listens until this is aborted.
    async fn run(self: Arc<Self>, mut session: Option<Session>) {
        let _guard = Guard(&self);
        let mut pause = PAUSES.0;
        loop {
            if let Some(open) = session.take() {
                pause = PAUSES.0;
                self.listen(open).await;
                self.listening.send_replace(None);
                self.hub.interrupted();
            }
            tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
            pause = (pause * 2).min(PAUSES.1);
            match self.open().await {
                Ok(open) => {
                    session = Some(open);
                    self.hub.interrupted();
                }
                Err(error) => tracing::debug!(%error, "no notifications"),
            }
        }
    }

    /// Connects, and checks that notifications arrive.
    async fn open(&self) -> Result<Session> {
        let (sender, notifications) = mpsc::unbounded_channel();
        let address = &self.pool.address;
        let connection = Connection::open(address, &address.listen, Some(sender)).await?;
        let mut session = Session {
            connection,
            notifications,
            registered: BTreeSet::new(),
        };
        session.probe(&self.pool).await?;
        let clients = self.wanted.borrow().clone();
        session.update(&clients).await?;
        self.listening
            .send_replace(Some(session.registered.clone()));
        Ok(session)
    }

    /// Passes notifications on until the connection ends.
    async fn listen(&self, mut session: Session) {
        let mut wanted = self.wanted.subscribe();
        // It may have changed since it was connected.
        wanted.mark_changed();
        let mut check = Instant::now() + REFRESH;
        loop {
            tokio::select! {
                notification = session.notifications.recv() => match notification {
                    Some(notification) => self.notify(&notification),
                    None => return,
                },
                _ = wanted.changed() => {
                    let clients = wanted.borrow_and_update().clone();
                    match timeout(PROBE, session.update(&clients)).await {
                        Ok(Ok(())) => self.listening.send_replace(Some(session.registered.clone())),
                        _ => return,
                    };
                }
                () = tokio::time::sleep_until(check) => {
                    check = Instant::now() + REFRESH;
                    let alive = session.connection.client.check_connection();
                    if !timeout(PROBE, alive).await.is_ok_and(|alive| alive.is_ok()) {
                        return;
                    }
                    self.deliver(self.watcher, Event::Interrupted(EventScope::Store));
                }
            }
        }
    }

    fn notify(&self, notification: &Notification) {
        let client = notification.channel().strip_prefix("leasehold_");
        let Some(client) = client.and_then(|client| client.parse().ok()) else {
            return;
        };
        for event in message::read(notification.payload().as_bytes(), client) {
            self.deliver(client, event);
        }
    }

    fn deliver(&self, client: ClientId, event: Event) {
        if let Some(Some(listener)) = self.hub.listener(client) {
            listener.notify(event);
        }
    }
}

impl Session {
    /// Sends a message to itself, on another connection.
    async fn probe(&mut self, pool: &Pool) -> Result<()> {
        let id = ClientId::from_random(random::bytes("the id of a connection")?);
        let own = channel(id);
        // A server that does not reply for longer has lost this client.
        let listen = format!(
            "SET lock_timeout = 0; SET statement_timeout = 0; SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; LISTEN {own}"
        );
        let client = &self.connection.client;
        client.batch_execute(&listen).await.map_err(describe)?;
        let other = pool.connection().await?;
        let notify = format!("NOTIFY {own}");
        other
            .client
            .batch_execute(&notify)
            .await
            .map_err(describe)?;
        pool.put_back(other);
        let found = timeout(PROBE, self.notifications.recv()).await;
        match found {
            Ok(Some(_)) => client
                .batch_execute(&format!("UNLISTEN {own}"))
                .await
                .map_err(describe),
            _ => Err(no_notifications()),
        }
    }

    /// Registers these clients, and no others.
    async fn update(&mut self, clients: &BTreeSet<ClientId>) -> Result<()> {
        let statement = |new: bool, client: &ClientId| {
            let (channel, lock) = (
                channel(*client),
                format!("leasehold.key('', '', '{client}', {LISTENS})"),
            );
            match new {
                true => [
                    format!("LISTEN {channel}"),
                    format!("SELECT pg_advisory_lock_shared({lock})"),
                ],
                false => [
                    format!("SELECT pg_advisory_unlock_shared({lock})"),
                    format!("UNLISTEN {channel}"),
                ],
            }
        };
        let added = clients
            .difference(&self.registered)
            .map(|client| statement(true, client));
        let removed = self
            .registered
            .difference(clients)
            .map(|client| statement(false, client));
        // The lock shows that the client listens, so it comes in a transaction of its own.
        for statement in added.chain(removed).flatten().collect::<Vec<_>>() {
            self.connection
                .client
                .batch_execute(&statement)
                .await
                .map_err(describe)?;
        }
        self.registered.clone_from(clients);
        Ok(())
    }
}
