//! Opens the store that a URL names. This is the only file that imports all stores.

use std::sync::Arc;

use super::api::{Keyspace, Store};
use super::diagnose::DiagnosticFacts;
use super::memory::MemoryStore;
use super::options::OpenOptions;
#[cfg(feature = "redis")]
use super::redis::{self, ClusterStore, RedisStore, deployment::Deployment};
#[cfg(feature = "redis")]
use super::redlock::RedlockStore;
#[cfg(feature = "sqlite")]
use super::sqlite::{self, SqliteStore};
use crate::{Durability, Error, ErrorKind, Result};

/// Opens the store that a URL names.
///
/// | URL | store |
/// |---|---|
/// | `memory:` | this client only |
/// | `sqlite:PATH` | a file, shared by the processes of one machine |
/// | `redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]` | a Redis server |
/// | `rediss://...[?ca=FILE&cert=FILE&key=FILE]` | the same over TLS |
/// | `redis+unix:PATH[?db=DB&user=USER]` | the same over a unix socket |
/// | `redis+sentinel://[...@]HOST[:PORT],.../MASTER[/DB]` | the master that sentinels name |
/// | `redis+cluster://[...@]HOST[:PORT],...` | a Redis cluster, found by any of its nodes |
/// | `redlock://[...@]HOST[:PORT],...[/DB][?longest-ttl=90s]` | many independent Redis masters |
///
/// `rediss+sentinel://`, `rediss+cluster://` and `redlocks://` are the same over TLS.
///
/// # Cancel safety
///
/// If the future is dropped, its connections are closed. A SQLite file may have been created.
///
/// # Errors
///
/// [`ErrorKind::InvalidConfig`] for any other URL, [`ErrorKind::Unsupported`] if the crate was built
/// without the store, [`ErrorKind::Unreachable`] and [`ErrorKind::Unauthorized`] by the reply of the
/// server.
#[cfg_attr(
    not(any(feature = "sqlite", feature = "redis")),
    expect(unused_variables, reason = "the memory store has no options")
)]
pub async fn open(url: &str, options: &OpenOptions) -> Result<Arc<dyn Store>> {
    Ok(match Scheme::of(url)? {
        Scheme::Memory => Arc::new(MemoryStore::open(url)?),
        #[cfg(feature = "sqlite")]
        Scheme::Sqlite => Arc::new(SqliteStore::open(url, options).await?),
        #[cfg(feature = "redis")]
        Scheme::Redis => match Deployment::parse(url)? {
            Deployment::Masters(_) => Arc::new(RedlockStore::open(url, options).await?),
            Deployment::Cluster(_) => Arc::new(ClusterStore::open(url, options).await?),
            Deployment::Single(_) | Deployment::Sentinel(_) => {
                Arc::new(RedisStore::open(url, options).await?)
            }
        },
    })
}

/// The URL of a store without a password, as the store's `Display`. Opens nothing.
///
/// # Errors
///
/// As [`open`] for a URL that names no store.
#[doc(hidden)]
pub fn redacted_url(url: &str) -> Result<String> {
    match Scheme::of(url)? {
        Scheme::Memory => Ok(MemoryStore::open(url)?.to_string()),
        #[cfg(feature = "sqlite")]
        Scheme::Sqlite => sqlite::redacted_url(url),
        #[cfg(feature = "redis")]
        Scheme::Redis => Ok(Deployment::parse(url)?.to_string()),
    }
}

/// Collects the facts that [`doctor`](crate::doctor) checks. Changes nothing in the store.
#[cfg_attr(
    not(feature = "redis"),
    expect(unused_variables, reason = "only servers have keyspaces to inspect")
)]
pub(crate) async fn diagnose(
    url: &str,
    options: &OpenOptions,
    space: &Keyspace,
    durability: Durability,
) -> Result<DiagnosticFacts> {
    match Scheme::of(url)? {
        Scheme::Memory => MemoryStore::open(url).map(|_| DiagnosticFacts::Memory),
        #[cfg(feature = "sqlite")]
        Scheme::Sqlite => {
            let facts = sqlite::diagnose(url, options, space).await?;
            Ok(DiagnosticFacts::File(facts))
        }
        #[cfg(feature = "redis")]
        Scheme::Redis => {
            let facts = redis::diagnose(url, options, space, durability).await?;
            Ok(DiagnosticFacts::Servers(facts))
        }
    }
}

/// The stores of this build, by the scheme of their URLs.
enum Scheme {
    Memory,
    #[cfg(feature = "sqlite")]
    Sqlite,
    #[cfg(feature = "redis")]
    Redis,
}

impl Scheme {
    fn of(url: &str) -> Result<Self> {
        match url.split_once(':').map_or("", |(scheme, _)| scheme) {
            "memory" => Ok(Self::Memory),
            #[cfg(feature = "sqlite")]
            "sqlite" => Ok(Self::Sqlite),
            #[cfg(not(feature = "sqlite"))]
            "sqlite" => Err(not_built_in("sqlite")),
            "redis" | "rediss" | "redis+unix" | "redis+sentinel" | "rediss+sentinel"
            | "redis+cluster" | "rediss+cluster" | "redlock" | "redlocks" => {
                #[cfg(feature = "redis")]
                return Ok(Self::Redis);
                #[cfg(not(feature = "redis"))]
                Err(not_built_in("redis"))
            }
            _ => Err(Error::new(
                ErrorKind::InvalidConfig,
                "the store URL must start with memory:, sqlite:, redis://, rediss://, redis+unix:, \
                 redis+sentinel://, redis+cluster:// or redlock://",
            )),
        }
    }
}

#[cfg(not(all(feature = "sqlite", feature = "redis")))]
fn not_built_in(feature: &str) -> Error {
    let message = format!("this build of leasehold has no {feature} store; enable the feature");
    Error::new(ErrorKind::Unsupported, message)
}
