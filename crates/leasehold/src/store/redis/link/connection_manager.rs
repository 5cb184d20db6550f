//! The connection to the server, reopened when it breaks.
//!
//! Nothing is ever sent twice from here: retries are the decision of the caller.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::ClientId;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::connect;
use super::notifications::Notifications;
use super::session::Session;
use super::subscriptions::SubscribedTo;
use crate::fork::Process;
use crate::store::lock::lock;
use crate::store::options::OpenOptions;
use crate::store::redis::address::Address;
use crate::store::redis::address::deployment::SentinelSet;
use crate::store::redis::errors;
use crate::store::tasks;
use crate::{Error, Result};

/// Replaces a timeout that is too long to be added to a clock.
const FAR_AWAY: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The part of the connect timeout in which a server that has not replied is checked: whether it accepts connections.
const ACCEPT_CHECK_DIVISOR: u32 = 4;

/// The target of a connection. Its `Display` is a URL without a password.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// This server, whatever its role.
    Fixed(Address),
    /// The master that sentinels name.
    Found(SentinelSet),
}

/// The one connection of a store.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionManager {
    sessions: Arc<Sessions>,
    subscribed_to: SubscribedTo,
    response_timeout: Duration,
    process: Process,
}

/// The current session with a target, and the attempts to open one.
#[derive(Debug)]
struct Sessions {
    target: Target,
    notifications: Arc<Notifications>,
    connect_timeout: Duration,
    current: Mutex<Option<Arc<Session>>>,
    /// Held during a connection attempt, for which all callers wait together. Keeps the error of the last
    /// attempt for them.
    dialing: tokio::sync::Mutex<Option<Error>>,
    /// The number of completed attempts.
    attempts: AtomicU64,
}

impl ConnectionManager {
    /// Connects on first use.
    pub(crate) fn new(target: impl Into<Target>, options: &OpenOptions) -> Self {
        Self::notifying(Arc::default(), target, options)
    }

    /// The same, for clients to which these notifications are passed on.
    pub(crate) fn notifying(
        notifications: Arc<Notifications>,
        target: impl Into<Target>,
        options: &OpenOptions,
    ) -> Self {
        Self {
            sessions: Sessions::new(target.into(), notifications, options.connect_timeout),
            subscribed_to: SubscribedTo::All,
            response_timeout: options.response_timeout,
            process: Process::current(),
        }
    }

    /// Another connection to the same target and for the same clients, which only receives changes.
    pub(crate) fn another(&self) -> Self {
        let (target, notifications) = (self.target().clone(), Arc::clone(self.notifications()));
        Self {
            sessions: Sessions::new(target, notifications, self.sessions.connect_timeout),
            subscribed_to: SubscribedTo::Changes,
            ..*self
        }
    }

    pub(crate) fn target(&self) -> &Target {
        &self.sessions.target
    }

    /// What is sent to the clients over this connection.
    pub(crate) fn notifications(&self) -> &Arc<Notifications> {
        &self.sessions.notifications
    }

    /// Ends the subscription of a client that was removed.
    pub(crate) fn unsubscribe(&self, client: ClientId) {
        if let Some(session) = self.sessions.usable() {
            let connection = &session.connection;
            session.subscriptions.unsubscribe(connection, client);
        }
    }

    /// Sends one command, and returns its reply, within a response timeout that is `longer`.
    pub(crate) async fn query(&self, longer: Duration, cmd: Cmd) -> Result<Value> {
        let query = |mut connection: MultiplexedConnection| async move {
            connection.send_packed_command(&cmd).await
        };
        self.exchange(longer, query).await
    }

    /// Runs `exchange`, which sends requests and waits for their replies, within a response timeout that is
    /// `longer`. Connects first if needed, within the connect timeout.
    ///
    /// A connection that failed or timed out is not used again: late replies on it must not delay those of
    /// other requests, or be taken for them.
    pub(crate) async fn exchange<T, F>(
        &self,
        longer: Duration,
        exchange: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<T>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let (session, deadline) = self.session(longer, false).await?;
        let exchange = exchange(session.connection.clone());
        self.await_reply(&session, deadline, exchange).await
    }

    /// A connection, opened within the connect timeout, and the deadline of a reply on it within a response timeout
    /// that is `longer`. A `settled` one has all subscriptions, within a response timeout of their own. The future may be
    /// dropped: no record is involved.
    pub(crate) async fn session(
        &self,
        longer: Duration,
        settled: bool,
    ) -> Result<(Arc<Session>, Instant)> {
        let session = self.connected().await?;
        if settled && !session.subscriptions.settled(self.notifications()) {
            let (manager, current) = (self.clone(), Arc::clone(&session));
            // In a task: a caller that is no longer polled must not keep the others waiting.
            let settling = tasks::spawn(async move { manager.settle(&current).await });
            let timeout = self.response_timeout;
            let ended = |_| Err(errors::no_reply_within(timeout).at_store(self.target()));
            settling.await.unwrap_or_else(ended)?;
        }
        let deadline = deadline(self.response_timeout.saturating_add(longer));
        Ok((session, deadline))
    }

    /// Subscribes all current clients on a connection, unless another caller does it.
    async fn settle(&self, session: &Arc<Session>) -> Result<()> {
        let subscriptions = &session.subscriptions;
        let (notifications, target) = (self.notifications(), self.target());
        let deadline = deadline(self.response_timeout);
        // Held until a connection without a reply has ended: the next caller must not send the same on it.
        let settling = timeout_at(deadline, subscriptions.settling.lock()).await;
        let Ok(_settling) = settling else {
            return Err(errors::no_reply_within(self.response_timeout).at_store(target));
        };
        if session.state.is_ended() {
            // The caller before got no reply.
            let error = RedisError::from(io::Error::from(io::ErrorKind::NotConnected));
            return Err(errors::no_reply(&error).at_store(target));
        }
        if subscriptions.settled(notifications) {
            return Ok(());
        }
        let mut connection = session.connection.clone();
        let to = self.subscribed_to;
        let settle = subscriptions.settle(&mut connection, notifications, target, to);
        self.await_reply(session, deadline, settle).await
    }

    /// Waits for a reply on a connection, and ends the connection if none arrives.
    pub(crate) async fn await_reply<T>(
        &self,
        session: &Arc<Session>,
        deadline: Instant,
        exchange: impl Future<Output = RedisResult<T>>,
    ) -> Result<T> {
        let error = tokio::select! {
            biased;
            // The replies of a former master are void.
            () = session.state.until_replaced() => errors::replaced(),
            reply = timeout_at(deadline, exchange) => match reply {
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(error)) => errors::no_reply(&error),
                Err(_) => errors::no_reply_within(self.response_timeout),
            },
        };
        session.state.end();
        // Dropped once nobody uses it: its subscriptions must no longer count.
        let _ = self.sessions.usable();
        Err(error.at_store(self.target()))
    }

    /// The current connection, or a new one.
    async fn connected(&self) -> Result<Arc<Session>> {
        // A forked process shares the connection: bytes that it reads or writes are missing in the parent.
        let checked = self.process.check();
        checked.map_err(|error| error.at_store(self.target()))?;
        if let Some(session) = self.sessions.usable() {
            return Ok(session);
        }
        let sessions = Arc::clone(&self.sessions);
        let attempts = sessions.attempts.load(Ordering::Acquire);
        // In a task: a caller that is no longer polled must not keep the others waiting.
        let dialing = tasks::spawn(async move { sessions.dial(attempts).await });
        let ended = |_| Err(self.sessions.timed_out(false));
        dialing.await.unwrap_or_else(ended)
    }

    /// The session over which a request would be sent immediately, without connecting or subscribing.
    pub(crate) fn ready_session(&self) -> Option<Arc<Session>> {
        let notifications = self.notifications();
        let is_settled = |session: &Arc<Session>| session.subscriptions.settled(notifications);
        self.sessions.usable().filter(is_settled)
    }
}

impl Sessions {
    fn new(
        target: Target,
        notifications: Arc<Notifications>,
        connect_timeout: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            target,
            notifications,
            connect_timeout,
            current: Mutex::default(),
            dialing: tokio::sync::Mutex::default(),
            attempts: AtomicU64::new(0),
        })
    }

    fn usable(&self) -> Option<Arc<Session>> {
        let mut current = lock(&self.current);
        if current.as_ref()?.state.is_ended() {
            *current = None;
        }
        current.clone()
    }

    /// Opens a session, or waits for that of another caller. `attempts` is the number of attempts before.
    async fn dial(&self, attempts: u64) -> Result<Arc<Session>> {
        let deadline = deadline(self.connect_timeout);
        let Ok(mut failure) = timeout_at(deadline, self.dialing.lock()).await else {
            return Err(self.timed_out(false));
        };
        if let Some(session) = self.usable() {
            return Ok(session);
        }
        if let Some(error) = &*failure
            && attempts != self.attempts.load(Ordering::Acquire)
        {
            return Err(error.clone());
        }
        let dial = async {
            match &self.target {
                Target::Fixed(address) => connect::dial(address, &self.notifications).await,
                Target::Found(set) => {
                    // Finding the server leaves it most of the time.
                    let limit = self.connect_timeout / 3;
                    set.dial(&self.notifications, limit).await
                }
            }
        };
        let check = async {
            let rest = self.connect_timeout / ACCEPT_CHECK_DIVISOR;
            sleep_until(self::deadline(self.connect_timeout - rest)).await;
            let accepts = match &self.target {
                Target::Fixed(address) => timeout_at(deadline, connect::accepts(address)).await,
                Target::Found(_) => Ok(false),
            };
            sleep_until(deadline).await;
            accepts.unwrap_or(false)
        };
        let session = tokio::select! {
            biased;
            session = dial => session.map_err(|error| error.at_store(&self.target)),
            accepts = check => Err(self.timed_out(accepts)),
        };
        let session = session.map(Arc::new);
        if let Ok(session) = &session {
            session.state.mark_usable();
        }
        *failure = session.as_ref().err().cloned();
        self.attempts.fetch_add(1, Ordering::Release);
        *lock(&self.current) = session.as_ref().ok().cloned();
        session
    }

    /// The error of an attempt that has timed out. `accepts` is whether the server accepts connections.
    fn timed_out(&self, accepts: bool) -> Error {
        let timeout = self.connect_timeout;
        let error = match &self.target {
            Target::Fixed(address) => errors::no_connection_within(timeout, address, accepts),
            Target::Found(_) => errors::nothing_found_within(timeout),
        };
        error.at_store(&self.target)
    }
}

impl From<Address> for Target {
    fn from(address: Address) -> Self {
        Self::Fixed(address)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(address) => address.fmt(f),
            Self::Found(set) => set.fmt(f),
        }
    }
}

/// The instant after a duration.
pub(crate) fn deadline(duration: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(duration).unwrap_or_else(|| now + FAR_AWAY)
}
