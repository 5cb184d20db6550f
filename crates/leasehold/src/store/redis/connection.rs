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

use super::dialed::Dialed;
use super::errors;
use super::listeners::Listeners;
use super::news::Told;
use super::place::Place;
use crate::process::Process;
use crate::store::Reply;
use crate::{Error, Result};

/// What a timeout means that is too long to be added to a clock.
const FAR_AWAY: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The one connection of a store.
#[derive(Debug)]
pub(super) struct Link {
    place: Place,
    told: Told,
    listeners: Arc<Listeners>,
    connect_timeout: Duration,
    response_timeout: Duration,
    current: Mutex<Option<Arc<Dialed>>>,
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

impl Link {
    /// Nothing is connected before it is used.
    pub(super) fn new(
        place: impl Into<Place>,
        connect_timeout: Duration,
        response_timeout: Duration,
    ) -> Self {
        let listeners = Arc::default();
        Self::told_to(listeners, place, connect_timeout, response_timeout)
    }

    /// The same, with those who are told what the server tells.
    pub(super) fn told_to(
        listeners: Arc<Listeners>,
        place: impl Into<Place>,
        connect_timeout: Duration,
        response_timeout: Duration,
    ) -> Self {
        Self {
            place: place.into(),
            told: Told::All,
            listeners,
            connect_timeout,
            response_timeout,
            current: Mutex::default(),
            dialing: tokio::sync::Mutex::default(),
            attempts: AtomicU64::new(0),
            process: Process::current(),
        }
    }

    /// Another connection to the same place, on which the same are told of changes only.
    pub(super) fn another(&self) -> Self {
        Self {
            told: Told::Changes,
            listeners: Arc::clone(&self.listeners),
            ..Self::new(
                self.place.clone(),
                self.connect_timeout,
                self.response_timeout,
            )
        }
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Those who are told what the server tells.
    pub(super) fn listeners(&self) -> &Arc<Listeners> {
        &self.listeners
    }

    /// Tells a client nothing any more.
    pub(super) fn forget(&self, client: ClientId) {
        self.listeners.remove(client);
        if let Some(dialed) = self.usable() {
            dialed.news.unsubscribe(&dialed.connection, client);
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

    /// As [`Link::exchange`]. The answers may take so much `longer`.
    pub(super) async fn exchange_longer<T, F>(
        &self,
        longer: Duration,
        talk: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<T, Trouble>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let dialed = self.dialed().await.map_err(Trouble::NotSent)?;
        let talk = talk(dialed.connection.clone());
        let deadline = Self::deadline(self.response_timeout.saturating_add(longer));
        let answer = self.answer(&dialed, deadline, talk).await;
        answer.map_err(Trouble::Unanswered)
    }

    /// As [`Link::exchange`], on a connection on which those are told who listen. The answers may take
    /// so much `longer`.
    pub(super) async fn exchange_settled<T, F>(
        &self,
        longer: Duration,
        talk: impl FnOnce(Arc<Dialed>) -> F,
    ) -> Result<T, Trouble>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let dialed = self.dialed().await.map_err(Trouble::NotSent)?;
        let deadline = Self::deadline(self.response_timeout.saturating_add(longer));
        let settled = self.settle(&dialed, deadline).await;
        settled.map_err(Trouble::NotSent)?;
        let talk = talk(Arc::clone(&dialed));
        let answer = self.answer(&dialed, deadline, talk).await;
        answer.map_err(Trouble::Unanswered)
    }

    /// A connection on which those are told who listen, made within the connect timeout and settled
    /// within the response timeout. May be dropped: nothing was asked of a record.
    pub(super) async fn settled(&self) -> Result<Arc<Dialed>> {
        let dialed = self.dialed().await?;
        let deadline = Self::deadline(self.response_timeout);
        self.settle(&dialed, deadline).await?;
        Ok(dialed)
    }

    async fn settle(&self, dialed: &Arc<Dialed>, deadline: Instant) -> Result<()> {
        let Dialed {
            connection, news, ..
        } = &**dialed;
        if news.settled(&self.listeners) {
            return Ok(());
        }
        let mut connection = connection.clone();
        let settle = news.settle(&mut connection, &self.listeners, &self.place, self.told);
        self.answer(dialed, deadline, settle).await
    }

    /// Waits for an answer on a connection, which is not used again if there is none.
    pub(super) async fn answer<T>(
        &self,
        dialed: &Arc<Dialed>,
        deadline: Instant,
        talk: impl Future<Output = RedisResult<T>>,
    ) -> Result<T> {
        let replaced = async {
            match dialed.lookout {
                Some(_) => dialed.standing.until_replaced().await,
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
        self.discard(dialed);
        Err(error.at_store(&self.place))
    }

    /// Ends the connection to a server that was made a replica, if another may be the master: nothing
    /// was done there.
    pub(super) fn mind_demotion(&self, dialed: &Arc<Dialed>, replies: &mut [Reply]) {
        let demoted = |reply: &&mut Reply| matches!(reply, Reply::Rejected(error) if errors::is_of_replica(error));
        if !self.place.moves() {
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
            self.discard(dialed);
        }
    }

    /// The instant after a span.
    pub(super) fn deadline(span: Duration) -> Instant {
        let now = Instant::now();
        now.checked_add(span).unwrap_or_else(|| now + FAR_AWAY)
    }

    /// The current connection, or a new one.
    async fn dialed(&self) -> Result<Arc<Dialed>> {
        // A fork shares the connection: what it wrote or read there would be missing in the parent.
        self.process
            .check()
            .map_err(|error| error.at_store(&self.place))?;
        if let Some(dialed) = self.usable() {
            return Ok(dialed);
        }
        let attempts = self.attempts.load(Ordering::Acquire);
        let deadline = Self::deadline(self.connect_timeout);
        let Ok(mut failure) = timeout_at(deadline, self.dialing.lock()).await else {
            return Err(self.no_connection_in_time());
        };
        if let Some(dialed) = self.usable() {
            return Ok(dialed);
        }
        if let Some(error) = &*failure
            && attempts != self.attempts.load(Ordering::Acquire)
        {
            return Err(error.clone());
        }
        // On the heap: whoever finds a connection need not carry what it takes to make one.
        let dial = Box::pin(self.place.dial(&self.listeners, self.connect_timeout));
        let dialed = match timeout_at(deadline, dial).await {
            Ok(dialed) => dialed.map_err(|error| error.at_store(&self.place)),
            Err(_) => Err(self.no_connection_in_time()),
        };
        let dialed = dialed.map(Arc::new);
        *failure = dialed.as_ref().err().cloned();
        self.attempts.fetch_add(1, Ordering::Release);
        *self.current() = dialed.as_ref().ok().cloned();
        dialed
    }

    fn no_connection_in_time(&self) -> Error {
        let error = self.place.no_connection_within(self.connect_timeout);
        error.at_store(&self.place)
    }

    fn usable(&self) -> Option<Arc<Dialed>> {
        let mut current = self.current();
        if current.as_ref()?.standing.ended() {
            *current = None;
        }
        current.clone()
    }

    /// Forgets a connection, unless another has taken its place already.
    fn discard(&self, broken: &Arc<Dialed>) {
        broken.standing.end();
        let mut current = self.current();
        if current
            .as_ref()
            .is_some_and(|dialed| Arc::ptr_eq(dialed, broken))
        {
            *current = None;
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<Dialed>>> {
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

    async fn ping(link: &Link) -> Result<(), Trouble> {
        let ping = cmd("PING");
        let answer = link
            .exchange(|mut connection| async move { connection.send_packed_command(&ping).await });
        answer.await.map(drop)
    }

    /// A lost connection is noticed while nobody asks, so the next request is not lost with it.
    #[tokio::test(flavor = "multi_thread")]
    async fn an_idle_connection_that_was_cut_costs_nothing() {
        let server = RedisServer::start();
        let address = Address::parse(&server.url()).unwrap();
        let link = Link::new(address, SOON, SOON);
        for _ in 0..3 {
            ping(&link).await.unwrap();
            assert!(link.usable().is_some());
            server.cli(&["CLIENT", "KILL", "USER", "default"]);
            eventually_async(SOON, async || link.usable().is_none()).await;
        }
        ping(&link).await.unwrap();
    }
}
