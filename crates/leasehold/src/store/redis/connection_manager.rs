//! The connection to the server, made anew when it broke.
//!
//! Nothing is ever sent twice from here: whether to ask again is the caller's decision.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::ClientId;
use redis::RedisResult;
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, timeout_at};

use super::errors;
use super::notifications::Notifications;
use super::session::Session;
use super::subscriptions::SubscribedTo;
use super::target::Target;
use crate::process::Process;
use crate::store::api::Reply;
use crate::{Error, Result};

/// What a timeout means that is too long to be added to a clock.
const FAR_AWAY: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The one connection of a store.
#[derive(Debug)]
pub(super) struct ConnectionManager {
    target: Target,
    told: SubscribedTo,
    notifications: Arc<Notifications>,
    connect_timeout: Duration,
    response_timeout: Duration,
    current: Mutex<Option<Arc<Session>>>,
    /// Held while dialing: whoever needs a connection waits for the one attempt. Keeps why the
    /// last attempt failed, for those who waited for it.
    dialing: tokio::sync::Mutex<Option<Error>>,
    /// How many attempts have ended.
    attempts: AtomicU64,
    process: Process,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The request was certainly not sent.
    NotSent(Error),
    /// It was, or may have been.
    Unanswered(Error),
}

impl ConnectionManager {
    /// Nothing is connected before it is used.
    pub(super) fn new(
        target: impl Into<Target>,
        connect_timeout: Duration,
        response_timeout: Duration,
    ) -> Self {
        let notifications = Arc::default();
        Self::with_notifications(notifications, target, connect_timeout, response_timeout)
    }

    /// The same, with those who are told what the server tells.
    pub(super) fn with_notifications(
        notifications: Arc<Notifications>,
        target: impl Into<Target>,
        connect_timeout: Duration,
        response_timeout: Duration,
    ) -> Self {
        Self {
            target: target.into(),
            told: SubscribedTo::All,
            notifications,
            connect_timeout,
            response_timeout,
            current: Mutex::default(),
            dialing: tokio::sync::Mutex::default(),
            attempts: AtomicU64::new(0),
            process: Process::current(),
        }
    }

    /// Another connection to the same target, on which the same are told of changes only.
    pub(super) fn another(&self) -> Self {
        Self {
            told: SubscribedTo::Changes,
            notifications: Arc::clone(&self.notifications),
            ..Self::new(
                self.target.clone(),
                self.connect_timeout,
                self.response_timeout,
            )
        }
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// Those who are told what the server tells.
    pub(super) fn notifications(&self) -> &Arc<Notifications> {
        &self.notifications
    }

    /// Tells a client nothing any more.
    pub(super) fn forget(&self, client: ClientId) {
        self.notifications.remove(client);
        if let Some(session) = self.usable() {
            session
                .subscriptions
                .unsubscribe(&session.connection, client);
        }
    }

    /// Lets `talk` send requests and wait for their answers, together within the response timeout,
    /// after a connection was made within the connect timeout.
    ///
    /// A connection that failed or did not answer in time is not used again: what is still under
    /// way on it must not delay, or be taken for, the answer to something else.
    pub(super) async fn exchange<T, F>(
        &self,
        talk: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<T, Trouble>
    where
        F: Future<Output = RedisResult<T>>,
    {
        self.exchange_longer(Duration::ZERO, talk).await
    }

    /// As [`ConnectionManager::exchange`]. The answers may take so much `longer`.
    pub(super) async fn exchange_longer<T, F>(
        &self,
        longer: Duration,
        talk: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<T, Trouble>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let session = self.session().await.map_err(Trouble::NotSent)?;
        let talk = talk(session.connection.clone());
        let deadline = Self::deadline(self.response_timeout.saturating_add(longer));
        let answer = self.answer(&session, deadline, talk).await;
        answer.map_err(Trouble::Unanswered)
    }

    /// As [`ConnectionManager::exchange`], on a connection on which those are told who listen. The answers may take
    /// so much `longer`.
    pub(super) async fn exchange_settled<T, F>(
        &self,
        longer: Duration,
        talk: impl FnOnce(Arc<Session>) -> F,
    ) -> Result<T, Trouble>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let session = self.session().await.map_err(Trouble::NotSent)?;
        let deadline = Self::deadline(self.response_timeout.saturating_add(longer));
        let settled = self.settle(&session, deadline).await;
        settled.map_err(Trouble::NotSent)?;
        let talk = talk(Arc::clone(&session));
        let answer = self.answer(&session, deadline, talk).await;
        answer.map_err(Trouble::Unanswered)
    }

    /// A connection on which those are told who listen, made within the connect timeout and settled
    /// within the response timeout. May be dropped: nothing was asked of a record.
    pub(super) async fn settled(&self) -> Result<Arc<Session>> {
        let session = self.session().await?;
        let deadline = Self::deadline(self.response_timeout);
        self.settle(&session, deadline).await?;
        Ok(session)
    }

    async fn settle(&self, session: &Arc<Session>, deadline: Instant) -> Result<()> {
        let Session {
            connection,
            subscriptions,
            ..
        } = &**session;
        if subscriptions.settled(&self.notifications) {
            return Ok(());
        }
        let mut connection = connection.clone();
        let settle = subscriptions.settle(
            &mut connection,
            &self.notifications,
            &self.target,
            self.told,
        );
        self.answer(session, deadline, settle).await
    }

    /// Waits for an answer on a connection, which is not used again if there is none.
    pub(super) async fn answer<T>(
        &self,
        session: &Arc<Session>,
        deadline: Instant,
        talk: impl Future<Output = RedisResult<T>>,
    ) -> Result<T> {
        let replaced = async {
            match session.failover_monitor {
                Some(_) => session.state.until_replaced().await,
                None => std::future::pending().await,
            }
        };
        let error = tokio::select! {
            biased;
            // What a master says that is none any more counts for nothing.
            () = replaced => errors::replaced(),
            answer = timeout_at(deadline, talk) => match answer {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => errors::no_answer(&error),
                Err(_) => errors::no_answer_within(self.response_timeout),
            },
        };
        self.discard(session);
        Err(error.at_store(&self.target))
    }

    /// Ends the connection to a server that was made a replica, if another may be the master: nothing
    /// was done there.
    pub(super) fn check_demotion(&self, session: &Arc<Session>, replies: &mut [Reply]) {
        let demoted = |reply: &&mut Reply| matches!(reply, Reply::Rejected(error) if errors::is_of_replica(error));
        if !self.target.moves() {
            return;
        }
        let mut found = false;
        for reply in replies.iter_mut().filter(demoted) {
            if let Reply::Rejected(error) = reply {
                *error = errors::demoted(error);
            }
            found = true;
        }
        if found {
            self.discard(session);
        }
    }

    /// The instant after a span.
    pub(super) fn deadline(span: Duration) -> Instant {
        let now = Instant::now();
        now.checked_add(span).unwrap_or_else(|| now + FAR_AWAY)
    }

    /// The current connection, or a new one.
    async fn session(&self) -> Result<Arc<Session>> {
        // A fork shares the connection: what it wrote or read there would be missing in the parent.
        self.process
            .check()
            .map_err(|error| error.at_store(&self.target))?;
        if let Some(session) = self.usable() {
            return Ok(session);
        }
        let attempts = self.attempts.load(Ordering::Acquire);
        let deadline = Self::deadline(self.connect_timeout);
        let Ok(mut failure) = timeout_at(deadline, self.dialing.lock()).await else {
            return Err(self.no_connection_in_time());
        };
        if let Some(session) = self.usable() {
            return Ok(session);
        }
        if let Some(error) = &*failure
            && attempts != self.attempts.load(Ordering::Acquire)
        {
            return Err(error.clone());
        }
        // On the heap: whoever finds a connection need not carry what it takes to make one.
        let dial = Box::pin(self.target.dial(&self.notifications, self.connect_timeout));
        let session = match timeout_at(deadline, dial).await {
            Ok(session) => session.map_err(|error| error.at_store(&self.target)),
            Err(_) => Err(self.no_connection_in_time()),
        };
        let session = session.map(Arc::new);
        *failure = session.as_ref().err().cloned();
        self.attempts.fetch_add(1, Ordering::Release);
        *self.current() = session.as_ref().ok().cloned();
        session
    }

    fn no_connection_in_time(&self) -> Error {
        let error = self.target.no_connection_within(self.connect_timeout);
        error.at_store(&self.target)
    }

    fn usable(&self) -> Option<Arc<Session>> {
        let mut current = self.current();
        if current.as_ref()?.state.is_ended() {
            *current = None;
        }
        current.clone()
    }

    /// Forgets a connection, unless another has taken its target already.
    fn discard(&self, broken: &Arc<Session>) {
        broken.state.end();
        let mut current = self.current();
        if current
            .as_ref()
            .is_some_and(|session| Arc::ptr_eq(session, broken))
        {
            *current = None;
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<Session>>> {
        // A panic cannot leave it half changed: it is only ever replaced as a whole.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use leasehold_testkit::{RedisServer, eventually_async};
    use redis::cmd;

    use super::super::address::Address;
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    async fn ping(manager: &ConnectionManager) -> Result<(), Trouble> {
        let ping = cmd("PING");
        let answer = manager
            .exchange(|mut connection| async move { connection.send_packed_command(&ping).await });
        answer.await.map(drop)
    }

    /// A lost connection is noticed while nobody asks, so the next request is not lost with it.
    #[tokio::test(flavor = "multi_thread")]
    async fn an_idle_connection_that_was_cut_costs_nothing() {
        let server = RedisServer::start();
        let address = Address::parse(&server.url()).unwrap();
        let manager = ConnectionManager::new(address, SOON, SOON);
        for _ in 0..3 {
            ping(&manager).await.unwrap();
            assert!(manager.usable().is_some());
            server.cli(&["CLIENT", "KILL", "USER", "default"]);
            eventually_async(SOON, async || manager.usable().is_none()).await;
        }
        ping(&manager).await.unwrap();
    }
}
