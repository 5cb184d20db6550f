//! Opens the store that a URL names. This is the only file that imports all stores.

use std::sync::Arc;

#[cfg(feature = "doctor")]
use super::api::Keyspace;
use super::api::Store;
#[cfg(feature = "doctor")]
use super::diagnose::DiagnosticFacts;
#[cfg(feature = "etcd")]
use super::etcd::{self, EtcdStore};
use super::memory::MemoryStore;
#[cfg(feature = "object-store")]
use super::objects::{self, ObjectsStore};
use super::options::OpenOptions;
#[cfg(feature = "postgres")]
use super::postgres::{self, PostgresStore};
#[cfg(feature = "redis")]
use super::redis::{RedisStore, deployment::Deployment};
#[cfg(feature = "redis")]
use super::redlock::RedlockStore;
#[cfg(feature = "sqlite")]
use super::sqlite::{self, SqliteStore};
use super::url_suggestion;
#[cfg(feature = "zookeeper")]
use super::zookeeper::{self, ZookeeperStore};
#[cfg(feature = "doctor")]
use crate::Durability;
use crate::{Error, ErrorKind, Result};

/// Opens the store that a URL names, for several clients that share it. Passwords, certificates and timeouts of a
/// [`ClientBuilder`](crate::ClientBuilder) do not apply here; a URL can contain a password. The timeouts are those for a ttl
/// of 15 s or more: 5 s for a connection, 2 s for a reply. A single client connects to the URL itself, by
/// [`Client::connect`](crate::Client::connect).
///
/// | URL | store | crate feature |
/// |---|---|---|
/// | `memory:` | this client only | |
/// | `sqlite:PATH` | a file, shared by the processes of one machine | `sqlite` |
/// | `postgres://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]` | a PostgreSQL database | `postgres` |
/// | `etcd://[USER[:PASSWORD]@]HOST[:PORT],...[/PREFIX]` | an etcd cluster; `etcds://` over TLS | `etcd` |
/// | `zookeeper://[USER:PASSWORD@]HOST[:PORT],...[/PATH]` | a ZooKeeper ensemble; `zookeepers://` over TLS | `zookeeper` |
/// | `s3://BUCKET[/PREFIX]`, `gs://...`, `az://...` | a bucket of an object store | `object-store` |
/// | `redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]` | a Redis server | `redis` |
/// | `rediss://...[?ca=FILE&cert=FILE&key=FILE]` | the same over TLS | `tls` |
/// | `redis+unix:PATH[?db=DB&user=USER]` | the same over a unix socket | `redis` |
/// | `redis+sentinel://[...@]HOST[:PORT],.../MASTER[/DB]` | the master that sentinels name | `redis` |
/// | `redis+cluster://[...@]HOST[:PORT],...` | a Redis cluster, found by any of its nodes | `redis` |
/// | `redlock://[...@]HOST[:PORT],...[/DB][?longest-ttl=90s]` | many independent Redis masters | `redis` |
///
/// `rediss+sentinel://`, `rediss+cluster://` and `redlocks://` are the same over TLS.
///
/// The path of `sqlite:` is not decoded, and may be relative; its directory must exist.
///
/// # Errors
///
/// [`ErrorKind::InvalidConfig`] for any other URL, [`ErrorKind::Unsupported`] if the crate was built
/// without the feature, [`ErrorKind::Unreachable`], [`ErrorKind::Unauthorized`], [`ErrorKind::NoPassword`] and
/// [`ErrorKind::WrongPassword`] by the reply of the server.
///
/// # Cancel safety
///
/// If the future is dropped, its connections are closed. A SQLite file may have been created.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::sync::Arc;
/// use leasehold::{Client, store};
///
/// let store = store::open("memory:").await?;
/// let billing = Client::builder().namespace("billing").connect(Arc::clone(&store)).await?;
/// let mail = Client::builder().namespace("mail").connect(store).await?;
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
pub async fn open(url: &str) -> Result<Arc<dyn Store>> {
    open_with(url, &OpenOptions::default()).await
}

/// Opens the store that a URL names. See [`open()`].
#[cfg_attr(
    not(any(
        feature = "sqlite",
        feature = "postgres",
        feature = "redis",
        feature = "__documents"
    )),
    expect(unused_variables, reason = "the memory store has no options")
)]
pub async fn open_with(url: &str, options: &OpenOptions) -> Result<Arc<dyn Store>> {
    Ok(match Scheme::of(url)? {
        Scheme::Memory => Arc::new(MemoryStore::open(url)?),
        #[cfg(feature = "sqlite")]
        Scheme::Sqlite => Arc::new(SqliteStore::open(url, options).await?),
        #[cfg(feature = "postgres")]
        Scheme::Postgres => Arc::new(PostgresStore::open_url(url, options).await?),
        #[cfg(feature = "etcd")]
        Scheme::Etcd => Arc::new(EtcdStore::open_url(url, options).await?),
        #[cfg(feature = "zookeeper")]
        Scheme::Zookeeper => Arc::new(ZookeeperStore::open_url(url, options).await?),
        #[cfg(feature = "object-store")]
        Scheme::Objects => Arc::new(ObjectsStore::open_url(url, options).await?),
        #[cfg(feature = "redis")]
        Scheme::Redis => match Deployment::of(url, options)? {
            Deployment::Masters(masters) => Arc::new(RedlockStore::open(masters, options).await?),
            one => Arc::new(RedisStore::connect(one, options).await?),
        },
    })
}

/// The URL of a store without a password, as the store's `Display`. Opens nothing.
///
/// # Errors
///
/// As [`open()`] for a URL that names no store.
#[doc(hidden)]
pub fn redacted_url(url: &str) -> Result<String> {
    match Scheme::of(url)? {
        Scheme::Memory => Ok(MemoryStore::open(url)?.to_string()),
        #[cfg(feature = "sqlite")]
        Scheme::Sqlite => sqlite::redacted_url(url),
        #[cfg(feature = "postgres")]
        Scheme::Postgres => postgres::redacted_url(url),
        #[cfg(feature = "etcd")]
        Scheme::Etcd => etcd::redacted_url(url),
        #[cfg(feature = "zookeeper")]
        Scheme::Zookeeper => zookeeper::redacted_url(url),
        #[cfg(feature = "object-store")]
        Scheme::Objects => objects::redacted_url(url),
        #[cfg(feature = "redis")]
        Scheme::Redis => Ok(Deployment::parse(url)?.to_string()),
    }
}

/// A URL without its user, which is not a part of the identity of the store. A name of a store is returned as it is.
#[doc(hidden)]
#[must_use]
pub fn without_user(url: &str) -> String {
    if let Some((scheme, rest)) = url.split_once("://") {
        let end = rest.find('/').unwrap_or(rest.len());
        let host = rest[..end].rfind('@').map_or(0, |at| at + 1);
        return format!("{scheme}://{}", &rest[host..]);
    }
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let others = query.split('&').filter(|part| !part.starts_with("user="));
    let others = others.collect::<Vec<_>>().join("&");
    match others.is_empty() {
        true => path.to_owned(),
        false => format!("{path}?{others}"),
    }
}

/// Collects the facts that [`doctor`](crate::doctor) checks. Changes nothing in the store.
#[cfg(feature = "doctor")]
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
    Ok(match Scheme::of(url)? {
        Scheme::Memory => MemoryStore::open(url).map(|_| DiagnosticFacts::Memory)?,
        #[cfg(feature = "sqlite")]
        Scheme::Sqlite => DiagnosticFacts::File(sqlite::diagnose(url, options, space).await?),
        #[cfg(feature = "postgres")]
        Scheme::Postgres => {
            DiagnosticFacts::Database(Box::new(postgres::diagnose(url, options).await?))
        }
        #[cfg(feature = "etcd")]
        Scheme::Etcd => DiagnosticFacts::Etcd(etcd::diagnose(url, options).await?),
        #[cfg(feature = "zookeeper")]
        Scheme::Zookeeper => DiagnosticFacts::Zookeeper(zookeeper::diagnose(url, options).await?),
        #[cfg(feature = "object-store")]
        Scheme::Objects => DiagnosticFacts::Bucket(objects::diagnose(url, options).await?),
        #[cfg(feature = "redis")]
        Scheme::Redis => {
            let facts = super::redis::diagnose(url, options, space, durability).await?;
            DiagnosticFacts::Servers(facts)
        }
    })
}

/// The statements that create the schema of a PostgreSQL store, and grant a role the rights that locks need.
#[cfg(all(feature = "doctor", feature = "postgres"))]
pub(crate) fn postgres_setup(role: Option<&str>) -> String {
    super::postgres::setup(role)
}

/// The stores of this build, by the scheme of their URLs.
enum Scheme {
    Memory,
    #[cfg(feature = "sqlite")]
    Sqlite,
    #[cfg(feature = "postgres")]
    Postgres,
    #[cfg(feature = "etcd")]
    Etcd,
    #[cfg(feature = "zookeeper")]
    Zookeeper,
    #[cfg(feature = "object-store")]
    Objects,
    #[cfg(feature = "redis")]
    Redis,
}

impl Scheme {
    fn of(url: &str) -> Result<Self> {
        match url.split_once(':').map_or("", |(scheme, _)| scheme) {
            "memory" => Ok(Self::Memory),
            #[cfg(feature = "sqlite")]
            "sqlite" => Ok(Self::Sqlite),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => Ok(Self::Postgres),
            #[cfg(feature = "etcd")]
            "etcd" | "etcds" => Ok(Self::Etcd),
            #[cfg(feature = "zookeeper")]
            "zookeeper" | "zookeepers" => Ok(Self::Zookeeper),
            #[cfg(feature = "object-store")]
            "s3" | "gs" | "az" => Ok(Self::Objects),
            #[cfg(feature = "redis")]
            "redis" | "redis+unix" | "redis+sentinel" | "redis+cluster" | "redlock" => {
                Ok(Self::Redis)
            }
            #[cfg(feature = "tls")]
            "rediss" | "rediss+sentinel" | "rediss+cluster" | "redlocks" => Ok(Self::Redis),
            other => Err(not_in_this_build(other, url)),
        }
    }
}

/// The error of a URL whose scheme this build does not know.
fn not_in_this_build(scheme: &str, url: &str) -> Error {
    let feature = match scheme {
        "sqlite" => "sqlite",
        "postgres" | "postgresql" => "postgres",
        "etcd" | "etcds" => "etcd",
        "zookeeper" | "zookeepers" => "zookeeper",
        "s3" | "gs" | "az" => "object-store",
        "redis" | "redis+unix" | "redis+sentinel" | "redis+cluster" | "redlock" => "redis",
        "rediss" | "rediss+sentinel" | "rediss+cluster" | "redlocks" => "tls",
        _ => {
            if url.starts_with(['"', '\'']) {
                let message =
                    "the store URL is in quotes, which are a part of it here; remove them";
                return Error::new(ErrorKind::InvalidConfig, message);
            }
            let given = match url_suggestion::is_public(url) {
                true => format!(" {url:?}"),
                false => String::new(),
            };
            let suggestion = url_suggestion::suggest(url)
                .map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
            let message = format!(
                "the store URL{given} must start with memory:, sqlite:, postgres://, etcd://, zookeeper://, s3://, gs://, az://, \
                 redis://, rediss://, redis+unix:, redis+sentinel://, redis+cluster:// or redlock://{suggestion}"
            );
            return Error::new(ErrorKind::InvalidConfig, message);
        }
    };
    let message = format!(
        "this build of leasehold has no store for {scheme}: URLs; enable its crate feature {feature}"
    );
    Error::new(ErrorKind::Unsupported, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_missing_feature() {
        for (scheme, feature) in [
            ("sqlite", "feature sqlite"),
            ("postgresql", "feature postgres"),
            ("etcds", "feature etcd"),
            ("zookeeper", "feature zookeeper"),
            ("s3", "feature object-store"),
            ("redlock", "feature redis"),
            ("rediss+sentinel", "feature tls"),
        ] {
            let error = not_in_this_build(scheme, "");
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().ends_with(feature), "{error}");
        }
        let error = not_in_this_build("http", "http://localhost");
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    }
}
