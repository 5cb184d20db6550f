//! The PostgreSQL store: records in tables, and the rule in this process.
//!
//! A batch is one transaction of two round trips: advisory locks of its names, so that nobody else changes their records, with
//! what the rule is likely to need; then the changes and the commit. Before the commit is sent, a failure is certain, and a
//! connection that has ended is replaced. Nothing is sent again after it.
//!
//! Waiters and observers of other processes are notified by `NOTIFY` in the same transaction. Their connections hold advisory
//! locks, so that a dead waiter is passed over.
//!
//! A transaction of a user relies on a holder by `leasehold.held`. Until it ends, that lease does not end: a release, a
//! downgrade or a revocation waits, and a lease whose time is over is extended.

mod address;
mod cache;
mod commit;
mod connection;
#[cfg(feature = "doctor")]
mod diagnose;
mod error;
mod gc;
mod hosts;
mod listener;
mod load;
mod need;
mod parameters;
mod queue;
mod read;
mod records;
mod rights;
mod tls;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use self::address::Address;
#[cfg(feature = "doctor")]
pub(super) use self::diagnose::diagnose;
use self::error::{Fault, has_ended, no_reply};
use self::listener::Listener;
use self::queue::Pool;
use self::read::Watched;
#[cfg(feature = "doctor")]
pub(super) use self::rights::setup;
use crate::Result;
use crate::fork::Process;
use crate::store::api::{Capabilities, Page, Reply, StoreKind};
use crate::store::backend::{Backend, ListenChange};
use crate::store::hub::Hub;
use crate::store::options::OpenOptions;
use crate::store::query::RunningQuery;
use crate::store::rule_store::RuleStore;
use crate::store::sessions::Sessions;
use crate::store::work::Work;

/// How often a query is tried on another connection, because that of before had ended.
const ATTEMPTS: usize = 3;

/// Lock records in a PostgreSQL database.
pub type PostgresStore = RuleStore<Postgres>;

impl PostgresStore {
    /// The number of transactions committed so far.
    #[doc(hidden)]
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.backend().pool.transactions.load(Ordering::Relaxed)
    }

    /// Connects to a database, and makes its schema if it is missing.
    #[doc(hidden)]
    pub async fn open_url(url: &str, options: &OpenOptions) -> Result<Self> {
        let hub = Arc::default();
        let postgres = Postgres::open(url, options, &hub).await;
        let postgres = postgres.map_err(|error| error.at_store(address::redacted(url)))?;
        Ok(Self::with_hub(postgres, hub))
    }
}

/// The connections to a database.
#[derive(Debug)]
pub struct Postgres {
    pool: Arc<Pool>,
    sessions: Sessions<Listener>,
    watched: Arc<Watched>,
    response_timeout: Duration,
    process: Process,
}

impl Postgres {
    async fn open(url: &str, options: &OpenOptions, hub: &Arc<Hub>) -> Result<Self> {
        let address = Address::parse(url, options)?;
        let watcher = hub.add_observers()?;
        // Its result, which is certain, arrives before the caller gives up.
        let limit = options.response_timeout / 4 * 3;
        let pool = Arc::new(Pool::new(address, limit, watcher));
        let connection = pool.connection().await?;
        connection.prepare().await?;
        pool.put_back(connection);
        let watched = Arc::<Watched>::default();
        let listener = Listener {
            pool: Arc::clone(&pool),
            hub: Arc::clone(hub),
            watched: Arc::clone(&watched),
        };
        let wanted = BTreeSet::from([watcher]);
        let sessions = Sessions::start(listener, Arc::clone(hub), wanted).await;
        Ok(Self {
            pool,
            sessions,
            watched,
            response_timeout: options.response_timeout,
            process: Process::current(),
        })
    }

    /// Reads a query on one connection. `None`: it had ended.
    async fn try_read(&self, query: &mut RunningQuery) -> Result<Option<()>> {
        let connection = self.pool.connection().await?;
        let client = &connection.client;
        let read = async {
            if let Some(key) = query.watched()
                && self.sessions.has_begun()
            {
                self.watched.register(client, &self.pool, key).await?;
            }
            while read::step(client, query).await? {}
            Ok::<(), Fault>(())
        };
        match read.await {
            Err(Fault::Reply(error)) if has_ended(&error) => Ok(None),
            Err(fault @ Fault::Reply(_)) => Err(fault.into()),
            read => {
                self.pool.put_back(connection);
                read.map(Some).map_err(Into::into)
            }
        }
    }
}

impl Backend for Postgres {
    fn capabilities(&self) -> Capabilities {
        Capabilities::notifying(StoreKind::Postgres, self.sessions.has_begun())
    }

    async fn transact(&self, work: Work) -> Result<Vec<Reply>> {
        self.process.check()?;
        let can_wait = self.sessions.until_registered().await;
        let (sender, receiver) = oneshot::channel();
        self.pool.can_wait.store(can_wait, Ordering::Relaxed);
        self.pool.add(work, Some(sender));
        match timeout(self.response_timeout, receiver).await {
            Ok(Ok(replies)) => Ok(replies),
            Ok(Err(_)) | Err(_) => Err(no_reply()),
        }
    }

    async fn read(&self, mut query: RunningQuery) -> Result<Page> {
        self.process.check()?;
        let read = async {
            // Observers take turns. The semaphore is never closed.
            let _permit = match query.watched().is_some() {
                true => self.pool.observers.acquire().await.ok(),
                false => None,
            };
            for _ in 0..ATTEMPTS {
                if self.try_read(&mut query).await?.is_some() {
                    return Ok(());
                }
            }
            Err(no_reply())
        };
        let read = timeout(self.response_timeout, read).await;
        read.unwrap_or_else(|_| Err(no_reply()))?;
        query.finish()
    }

    fn listen(&self, change: ListenChange) {
        self.sessions.listen(change);
    }
}

impl fmt::Display for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.address.fmt(f)
    }
}

/// The URL of a store as its `Display`.
pub(super) fn redacted_url(url: &str) -> Result<String> {
    Address::parse(url, &OpenOptions::default()).map(|address| address.to_string())
}
