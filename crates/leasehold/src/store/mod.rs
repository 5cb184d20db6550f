//! Where lock records live.
//!
//! A [`Store`] applies batches of operations, each atomically and by the rule of
//! [`leasehold_core::mutex`], and answers each. It never waits for a lock, never renews and never
//! retries: that is the client's work, the same over every store.

mod event;
mod key;
pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redis")]
pub mod redlock;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub(crate) mod survey;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::{ClientId, LeaseId, Op, Outcome, StoreTime, Token};

pub use self::event::{Event, EventScope, Listener, WakeupMode};
pub use self::key::{Key, Keyspace};
pub use self::memory::MemoryStore;
#[cfg(feature = "redis")]
pub use self::redis::RedisStore;
#[cfg(feature = "redis")]
pub use self::redlock::RedlockStore;
#[cfg(feature = "sqlite")]
pub use self::sqlite::SqliteStore;
use crate::{Durability, Error, ErrorKind, Result};

/// A future on the heap: a box is nothing beside a round trip, and stores are chosen at run time.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One place that keeps lock records.
///
/// Its `Display` is its URL without a password.
pub trait Store: fmt::Display + fmt::Debug + Send + Sync + 'static {
    /// Applies a batch, in its order, in as few round trips as the store can, and answers each
    /// request in the same order. Always as many replies as requests. Of renewals and nothing else,
    /// none concerns another, and they may be applied in any order.
    ///
    /// It ends within the store's response timeout.
    ///
    /// # Cancel safety
    ///
    /// A call that is dropped may or may not have been applied, now or later: treat it as
    /// [`Reply::Unknown`].
    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>>;

    /// The part of the store that a record is in. What happens to one part does not concern the others:
    /// renewals of different parts do not travel together, and do not wait for each other.
    fn shard(&self, key: &Key) -> Shard {
        let _ = key;
        Shard(0)
    }

    /// Whether a lease may be asked for again by its id, after it was refused or there was no answer.
    /// If not, each question needs a new id, and the old one is to be released.
    fn idempotent_acquire(&self) -> bool {
        true
    }

    /// What may be left of a lease that is not asked for again, after its acquisition was answered.
    fn leftover(&self, lease: LeaseId) -> Leftover {
        let _ = lease;
        Leftover::Unknown
    }

    /// Tells a client from now on what concerns it, as long as its listener lives. The leases of a
    /// client that listens can wait in queues; those of one that does not are passed over.
    ///
    /// Does no I/O by itself: whatever it takes travels with the next batch.
    fn listen(&self, space: &Keyspace, client: ClientId, listener: Weak<dyn Listener>);

    /// Tells a client nothing any more.
    fn forget(&self, client: ClientId);

    /// How those are woken at this moment who were refused.
    fn wakeup_mode(&self) -> WakeupMode;

    /// Whether it has replicas that can be waited for. If not, nobody may ask for another durability
    /// than none.
    fn has_replicas(&self) -> bool {
        false
    }

    /// Whether it can do at this moment what a durability asks for.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if it never can, [`ErrorKind::NotReplicated`] if it has too few
    /// replicas, and as the store's answer says.
    fn check(&self, durability: Durability) -> BoxFuture<'_, Result<()>> {
        let supported = match durability.is_replicated() {
            true => Err(not_replicated(&self)),
            false => Ok(()),
        };
        Box::pin(async move { supported })
    }

    /// Who holds a lock at this moment.
    ///
    /// # Errors
    ///
    /// As the store's answer says.
    fn inspect<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Entry>>>;

    /// The locks that are held in a space, ordered by name. Not one moment's picture: locks may
    /// come and go while it is taken.
    ///
    /// # Errors
    ///
    /// As the store's answer says.
    fn list<'a>(&'a self, space: &'a Keyspace) -> BoxFuture<'a, Result<Vec<Entry>>>;

    /// Writes down who a client is, for `ttl`. Only for people who look: no rule depends on it.
    ///
    /// # Errors
    ///
    /// As the store's answer says.
    fn announce<'a>(
        &'a self,
        space: &'a Keyspace,
        client: ClientId,
        about: &'a About,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<()>>;
}

/// A part of a store that can fail by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shard(pub u32);

/// What an acquisition in vain may have left in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// Nothing: no release is needed.
    None,
    /// Grants of a minority, and nothing is under way: a release ends them.
    Granted,
    /// Nobody knows: the acquisition may yet be applied somewhere.
    Unknown,
}

/// An operation on the record of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which record.
    pub key: Key,
    /// What to do with it.
    pub op: Op,
    /// Who must have what comes of it before it counts, if it grants or renews. The requests of one
    /// lease ask for the same.
    pub durability: Durability,
}

#[cfg(feature = "redis")]
impl Request {
    /// Whether it asks for a lock.
    pub(crate) fn acquires(&self) -> bool {
        matches!(self.op, Op::Acquire { .. })
    }
}

/// What became of a request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// It was applied.
    Applied {
        /// What the rule says.
        outcome: Outcome,
        /// The store's time at which it was.
        now: StoreTime,
    },
    /// It was certainly not applied.
    Rejected(Error),
    /// There was no answer: it may have been applied, or may yet be.
    Unknown(Error),
}

/// A lock that is held, as a person wants to see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which lock.
    pub key: Key,
    /// The lease that holds it.
    pub lease: LeaseId,
    /// How many holds its client has on it.
    pub count: u32,
    /// How long it holds it unless it renews or releases.
    pub left: Duration,
    /// The last token given out under this name. `None` if the counter was lost.
    pub token: Option<Token>,
    /// Who the client is, if it said so.
    pub client: Option<About>,
}

/// Who a client is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The name of its machine.
    pub host: String,
    /// Its process id there.
    pub pid: u32,
    /// The program it runs.
    pub program: String,
    /// A text of the user's choice; may be empty.
    pub label: String,
    /// When it was built: milliseconds since the Unix epoch, by its own clock.
    pub since_ms: u64,
}

/// What a store needs to know when it is opened.
#[derive(Clone)]
pub struct OpenOptions {
    /// How long to wait for a connection.
    pub connect_timeout: Duration,
    /// How long to wait for an answer.
    pub response_timeout: Duration,
    /// A password that is not in the URL. It takes the place of one that is.
    pub password: Option<String>,
    /// The password of the sentinels, if they ask for one. That of the servers is another.
    pub sentinel_password: Option<String>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(2),
            password: None,
            sentinel_password: None,
        }
    }
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("password", &self.password.as_ref().map(|_| "..."))
            .field(
                "sentinel_password",
                &self.sentinel_password.as_ref().map(|_| "..."),
            )
            .finish()
    }
}

/// Opens the store that a URL names.
///
/// | URL | store |
/// |---|---|
/// | `memory:` | this client only |
/// | `sqlite:PATH` | a file, shared by the processes of one machine |
/// | `redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]` | a Redis server |
/// | `rediss://...[?ca=FILE&cert=FILE&key=FILE]` | the same over TLS |
/// | `redis+unix:PATH[?db=DB&user=USER]` | the same over a unix socket |
///
/// | `redis+sentinel://[...@]HOST[:PORT],.../MASTER[/DB]` | the master that sentinels name |
/// | `redis+cluster://[...@]HOST[:PORT],...` | a Redis cluster, found by any of its nodes |
/// | `redlock://[...@]HOST[:PORT],...[/DB][?longest-ttl=90s]` | many Redis masters, each by itself |
///
/// `rediss+sentinel://`, `rediss+cluster://` and `redlocks://` are the same over TLS.
///
/// # Errors
///
/// [`ErrorKind::InvalidConfig`] for a URL that names none of these, [`ErrorKind::Unsupported`] if
/// the crate was built without the store, [`ErrorKind::Unreachable`] and
/// [`ErrorKind::Unauthorized`] as the server answers.
#[cfg_attr(
    not(any(feature = "sqlite", feature = "redis")),
    expect(unused_variables, reason = "the memory store has no options")
)]
pub async fn open(url: &str, options: &OpenOptions) -> Result<Arc<dyn Store>> {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    match scheme {
        "memory" => Ok(Arc::new(MemoryStore::open(url)?)),
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(Arc::new(SqliteStore::open(url, options).await?)),
        #[cfg(feature = "redis")]
        scheme if is_redis(scheme) => redis::open(url, options).await,
        #[cfg(not(feature = "sqlite"))]
        "sqlite" => Err(not_built_in("sqlite")),
        #[cfg(not(feature = "redis"))]
        scheme if is_redis(scheme) => Err(not_built_in("redis")),
        _ => Err(no_store()),
    }
}

/// The URL of a store as its `Display` shows it: without a password. Opens nothing.
///
/// # Errors
///
/// As [`open`] for a URL that names no store.
pub fn redacted_url(url: &str) -> Result<String> {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    match scheme {
        "memory" => Ok(MemoryStore::open(url)?.to_string()),
        #[cfg(feature = "sqlite")]
        "sqlite" => sqlite::redacted_url(url),
        #[cfg(feature = "redis")]
        scheme if is_redis(scheme) => redis::redacted_url(url),
        #[cfg(not(feature = "sqlite"))]
        "sqlite" => Err(not_built_in("sqlite")),
        #[cfg(not(feature = "redis"))]
        scheme if is_redis(scheme) => Err(not_built_in("redis")),
        _ => Err(no_store()),
    }
}

fn no_store() -> Error {
    Error::new(
        ErrorKind::InvalidConfig,
        "the store URL must start with memory:, sqlite:, redis://, rediss://, redis+unix:, \
         redis+sentinel://, redis+cluster:// or redlock://",
    )
}

fn is_redis(scheme: &str) -> bool {
    let (base, deployment) = scheme.split_once('+').unwrap_or((scheme, ""));
    match base {
        "redis" => matches!(deployment, "" | "unix" | "sentinel" | "cluster"),
        "rediss" => matches!(deployment, "" | "sentinel" | "cluster"),
        "redlock" | "redlocks" => deployment.is_empty(),
        _ => false,
    }
}

/// The replies of a store without replicas to a batch in which somebody asks for them: nothing of it is
/// applied. `None`: nobody does.
fn refuse_replicated(batch: &[Request], store: &dyn fmt::Display) -> Option<Vec<Reply>> {
    let asked = batch
        .iter()
        .any(|request| request.durability.is_replicated());
    let refused = || {
        batch
            .iter()
            .map(|request| not_replicated(store).for_lock(&request.key.name))
    };
    asked.then(|| refused().map(Reply::Rejected).collect())
}

/// That a store has no replicas.
pub(crate) fn not_replicated(store: &(impl fmt::Display + ?Sized)) -> Error {
    let message =
        "this store waits for no replicas; a Redis server does, named itself or by sentinels";
    Error::new(ErrorKind::Unsupported, message).at_store(store)
}

#[cfg(not(all(feature = "sqlite", feature = "redis")))]
fn not_built_in(feature: &str) -> Error {
    let message = format!("this build of leasehold has no {feature} store; enable the feature");
    Error::new(ErrorKind::Unsupported, message)
}
