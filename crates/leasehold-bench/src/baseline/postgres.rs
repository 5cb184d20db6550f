//! Advisory locks of PostgreSQL, which a session holds: nothing is written, and a lock is free when its connection ends. And
//! what a database uses.

use std::fmt;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use leasehold::Secret;
use serde::{Deserialize, Serialize};
use tokio_postgres::{Client, Config, NoTls, Statement};

use crate::{Result, failed};

/// The pause between two attempts.
const POLL: Duration = Duration::from_millis(50);

/// How a session waits for an advisory lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Advisory {
    /// In the server, by `pg_advisory_lock`
    #[default]
    Wait,
    /// By `pg_try_advisory_lock` every 50 ms
    Poll,
}

/// A connection, which is one contender, and its prepared statements.
pub(super) struct PostgresSession {
    client: Client,
    acquire: Statement,
    release: Statement,
    advisory: Advisory,
}

/// The address of a database, without TLS. It must be complete: no variables are read.
pub(super) fn config(url: &str, password: Option<&Secret>) -> Result<Config> {
    // The error of the client could quote a password.
    let mut config = url.parse::<Config>().map_err(|_| {
        "the baseline needs a store URL such as postgres://USER@HOST:PORT/DATABASE, without other parameters than those \
         of the PostgreSQL client"
    })?;
    if let Some(password) = password {
        config.password(password.expose());
    }
    Ok(config)
}

async fn connect(config: &Config) -> Result<Client> {
    let connected = config.connect(NoTls).await;
    let (client, connection) = connected.map_err(failed("no baseline connection"))?;
    // Ends with the client. Its errors are those of the client's calls.
    tokio::spawn(async move { connection.await.ok() });
    Ok(client)
}

impl PostgresSession {
    pub(super) async fn connect(config: &Config, advisory: Advisory) -> Result<Self> {
        let client = connect(config).await?;
        let acquire = match advisory {
            Advisory::Wait => "SELECT pg_advisory_lock($1) IS NOT NULL",
            Advisory::Poll => "SELECT pg_try_advisory_lock($1)",
        };
        Ok(Self {
            acquire: client.prepare(acquire).await?,
            release: client.prepare("SELECT pg_advisory_unlock($1)").await?,
            client,
            advisory,
        })
    }

    /// Acquires, and waits for that, or releases. Returns the number of calls.
    pub(super) async fn half(&self, record: &str, held: bool) -> Result<u64> {
        let key = key(record);
        if held {
            return match self.call(&self.release, key).await? {
                true => Ok(1),
                false => Err("the session does not hold the advisory lock".into()),
            };
        }
        let mut calls = 1;
        while !self.call(&self.acquire, key).await? && self.advisory == Advisory::Poll {
            tokio::time::sleep(POLL).await;
            calls += 1;
        }
        Ok(calls)
    }

    async fn call(&self, statement: &Statement, key: i64) -> Result<bool> {
        let row = self.client.query_one(statement, &[&key]).await?;
        Ok(row.try_get(0)?)
    }
}

impl fmt::Debug for PostgresSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("PostgresSession");
        text.field("advisory", &self.advisory)
            .finish_non_exhaustive()
    }
}

/// The tables of the library.
const TABLES: &str = "
SELECT sum(pg_total_relation_size(relid))::bigint, sum(n_dead_tup)::bigint
FROM pg_stat_user_tables WHERE schemaname = 'leasehold'";

/// The unit of times in `/proc`.
const TICK: Duration = Duration::from_millis(10);

/// A database, and the processes of its server.
pub(crate) struct Database {
    client: Client,
    /// Any process of the server.
    backend: i32,
}

impl Database {
    pub(super) async fn connect(config: &Config) -> Result<Self> {
        let client = connect(config).await?;
        let row = client.query_one("SELECT pg_backend_pid()", &[]).await?;
        let backend = row.try_get(0)?;
        Ok(Self { client, backend })
    }

    /// The bytes of the tables with their indexes, and the number of dead rows.
    pub(crate) async fn tables(&self) -> Result<[i64; 2]> {
        let row = self.client.query_one(TABLES, &[]).await?;
        Ok([row.try_get(0)?, row.try_get(1)?])
    }

    /// The processor time of all processes of the server so far. `None`: it is on another machine.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        let (parent, _) = stat(self.backend)?;
        let (_, [user, system, ended_user, ended_system]) = stat(parent)?;
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
        let children = children
            .split_whitespace()
            .filter_map(|pid| stat(pid.parse().ok()?));
        let children: u32 = children.map(|(_, times)| times[0] + times[1]).sum();
        Some(TICK * (user + system + ended_user + ended_system + children))
    }
}

/// The parent of a process of PostgreSQL, and its processor times: user and system, and those of children that have ended.
fn stat(pid: i32) -> Option<(i32, [u32; 4])> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (name, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<_> = rest.split(' ').collect();
    let time = |at: usize| fields.get(at)?.parse().ok();
    let parent = fields.get(1)?.parse().ok()?;
    let times = [time(11)?, time(12)?, time(13)?, time(14)?];
    name.contains("postgres").then_some((parent, times))
}

/// The key of a lock: the same in all processes of a run.
fn key(record: &str) -> i64 {
    let mut hasher = DefaultHasher::new();
    record.hash(&mut hasher);
    hasher.finish().cast_signed()
}
