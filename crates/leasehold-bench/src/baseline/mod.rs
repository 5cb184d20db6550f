//! The baseline: the same work without the library, as a program would do it that calls the store by hand.

mod postgres;
pub(crate) mod redis;
mod sqlite;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::__private::store::{Key, Reply, Request, Store};
use leasehold::Secret;
use leasehold_core::{Acquire, ClientId, LeaseId, Op, Outcome, Ttl};
use tokio::sync::OnceCell;

use self::postgres::PostgresSession;
pub(crate) use self::postgres::{Advisory, Database};
use self::redis::RedisBaseline;
use self::sqlite::SqliteBaseline;
use crate::Result;
use crate::server_stats::ServerStats;

/// The ttl of a baseline acquisition.
const TTL: Duration = Duration::from_secs(30);

/// Baseline calls to a store. Connects when it is first used.
#[derive(Debug)]
pub(crate) struct Baseline {
    url: String,
    password: Option<Secret>,
    store: Arc<dyn Store>,
    connection: OnceCell<Connection>,
    calls: AtomicU64,
    locks: AtomicU64,
}

#[derive(Debug)]
enum Connection {
    /// The same script.
    Redis(RedisBaseline),
    /// Two transactions in a file beside the store's.
    Sqlite(SqliteBaseline),
    /// Advisory locks. Each lock has a connection of its own.
    Postgres(Box<tokio_postgres::Config>),
    /// The operations of the library's own store.
    Store(Arc<dyn Store>),
}

impl Baseline {
    /// A baseline for the store of a URL.
    pub(crate) fn new(url: &str, password: Option<Secret>, store: Arc<dyn Store>) -> Self {
        Self {
            url: url.into(),
            password,
            store,
            connection: OnceCell::new(),
            calls: AtomicU64::new(0),
            locks: AtomicU64::new(1),
        }
    }

    async fn connection(&self) -> Result<&Connection> {
        let connect = async || {
            let (scheme, _) = self.url.split_once(':').unwrap_or_default();
            Ok(match scheme {
                "redis" | "rediss" | "redis+unix" => {
                    let password = self.password.as_ref();
                    Connection::Redis(RedisBaseline::connect(&self.url, password).await?)
                }
                "sqlite" => Connection::Sqlite(SqliteBaseline::beside(&self.store.to_string())?),
                "postgres" | "postgresql" => {
                    let password = self.password.as_ref();
                    Connection::Postgres(Box::new(postgres::config(&self.url, password)?))
                }
                _ => Connection::Store(Arc::clone(&self.store)),
            })
        };
        self.connection.get_or_try_init(connect).await
    }

    /// The server. `None`: the store is not a single one.
    pub(crate) async fn server(&self) -> Result<Option<&RedisBaseline>> {
        if !self.url.starts_with("redis") {
            return Ok(None);
        }
        Ok(match self.connection().await? {
            Connection::Redis(redis) => Some(redis),
            _ => None,
        })
    }

    /// What the database uses. `None`: the store is not PostgreSQL, or its URL has parameters that only the library knows.
    pub(crate) async fn database(&self) -> Result<Option<Database>> {
        if !self.url.starts_with("postgres") {
            return Ok(None);
        }
        Ok(match self.connection().await {
            Ok(Connection::Postgres(config)) => Some(Database::connect(config).await?),
            _ => None,
        })
    }

    /// The number of calls.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// The work of the server so far, for all its clients. `None`: there is no server, or it refuses.
    pub(crate) async fn server_stats(&self) -> Result<Option<ServerStats>> {
        match self.server().await? {
            Some(server) => server.server_stats().await,
            None => Ok(None),
        }
    }

    /// Renews leases, each in a call of its own, all sent before the first reply, as a program does without
    /// batches. Returns the number of renewals.
    pub(crate) async fn renew_each(&self, leases: &[(Key, LeaseId)], ttl: Duration) -> Result<u64> {
        let Some(server) = self.server().await? else {
            return Ok(0);
        };
        self.count(leases.len() as u64);
        server.renew_each(leases, ttl).await
    }

    fn count(&self, calls: u64) {
        self.calls.fetch_add(calls, Ordering::Relaxed);
    }
}

/// A lock by baseline calls, acquired and released by one task.
#[derive(Debug)]
pub(crate) struct BaselineLock {
    baseline: Arc<Baseline>,
    key: Key,
    /// Its record in Redis.
    record: String,
    lease: LeaseId,
    held: bool,
    advisory: Advisory,
    /// In PostgreSQL, from its first use.
    session: Option<Box<PostgresSession>>,
}

impl BaselineLock {
    pub(crate) fn new(baseline: &Arc<Baseline>, key: Key) -> Self {
        let number = baseline.locks.fetch_add(1, Ordering::Relaxed);
        Self {
            record: redis::record(&key),
            key,
            lease: LeaseId {
                client: ClientId::from_random(u128::from(number).to_be_bytes()),
                number: 0,
            },
            held: false,
            advisory: Advisory::default(),
            session: None,
            baseline: Arc::clone(baseline),
        }
    }

    /// The same lock, which waits in this way in PostgreSQL.
    pub(crate) fn advisory(self, advisory: Advisory) -> Self {
        Self { advisory, ..self }
    }

    /// Acquires and releases once, each in a call of its own.
    pub(crate) async fn pair(&mut self) -> Result<()> {
        self.step().await?;
        self.close().await
    }

    /// Acquires, or releases when it is called again, and returns the time of that call. Where a pair
    /// is one message to the store's thread, it does the whole of it and returns half the time.
    pub(crate) async fn half(&mut self) -> Result<Duration> {
        let (start, held) = (Instant::now(), self.held);
        self.step().await?;
        let time = start.elapsed();
        Ok(if self.held == held { time / 2 } else { time })
    }

    /// Releases it if it is acquired.
    pub(crate) async fn close(&mut self) -> Result<()> {
        match self.held {
            true => self.step().await,
            false => Ok(()),
        }
    }

    /// Makes the next call of a pair, or both at once.
    async fn step(&mut self) -> Result<()> {
        if !self.held {
            self.lease.number += 1;
        }
        let calls = match self.baseline.connection().await? {
            Connection::Redis(redis) => {
                let lease = self.lease.to_string();
                redis.half(&self.record, &lease, self.held).await?;
                self.held = !self.held;
                1
            }
            Connection::Sqlite(sqlite) => {
                sqlite.pair(&self.record).await?;
                2
            }
            Connection::Postgres(config) => {
                let session = match self.session.take() {
                    Some(session) => session,
                    None => Box::new(PostgresSession::connect(config, self.advisory).await?),
                };
                let calls = session.half(&self.record, self.held).await?;
                self.session = Some(session);
                self.held = !self.held;
                calls
            }
            Connection::Store(store) => {
                apply_pair(&**store, &self.key, self.lease).await?;
                2
            }
        };
        self.baseline.count(calls);
        Ok(())
    }
}

async fn apply_pair(store: &dyn Store, key: &Key, lease: LeaseId) -> Result<()> {
    let acquire = Op::Acquire(Acquire::mutex(lease, Ttl::remainder(TTL)));
    for op in [acquire, Op::release(lease)] {
        let request = Request::new(key.clone(), op);
        match store.apply(vec![request]).await.pop() {
            Some(Reply::Applied {
                outcome: Outcome::Granted { .. } | Outcome::Released,
                ..
            }) => {}
            Some(Reply::Rejected(error) | Reply::Unknown(error)) => return Err(error.into()),
            _ => return Err("a baseline call was refused".into()),
        }
    }
    Ok(())
}
