//! Stores: where lock records live.
//!
//! A [`Store`] applies batches of operations, each atomically and by the rule of
//! [`leasehold_core::mutex`], and returns a reply to each. It never waits for a lock, never renews and
//! never retries: that is the work of the client, and the same for every store.
//!
//! Most programs need none of this: [`Client::connect`](crate::Client::connect) opens the store that a URL
//! names.

mod api;
pub(crate) mod diagnose;
mod entry;
mod event;
mod forwarding;
mod key;
mod lock;
pub mod memory;
mod open;
mod options;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redis")]
pub mod redlock;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use leasehold_core::{
    ClientId, Grant, LeaseId, Loss, Name, Notice, Op, Outcome, ScopeName, StoreTime, Ttl,
};

#[cfg(test)]
pub(crate) use self::api::fixture;
pub(crate) use self::api::not_replicated;
pub use self::api::{
    BoxFuture, Capabilities, ClientInfo, Entry, Event, EventScope, Key, Keyspace, Leftover,
    Listener, Reply, Request, Shard, Store, WakeupMode,
};
#[doc(hidden)]
pub use self::forwarding::ForwardingStore;
pub use self::memory::MemoryStore;
pub(crate) use self::open::diagnose;
pub use self::open::open;
#[doc(hidden)]
pub use self::open::redacted_url;
pub use self::options::OpenOptions;
#[cfg(feature = "redis")]
pub use self::redis::RedisStore;
#[cfg(feature = "redis")]
pub use self::redlock::RedlockStore;
#[cfg(feature = "sqlite")]
pub use self::sqlite::SqliteStore;
