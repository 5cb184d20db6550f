//! Stores: where lock records live.
//!
//! A [`Store`] applies batches of operations, each atomically and by the rule of
//! [`leasehold_core::record`], and returns a reply to each. It never waits for a lock, never renews and
//! never retries: that is the work of the client, and the same for every store.
//!
//! Most programs need none of this: [`Client::connect`](crate::Client::connect) opens the store that a URL
//! names.

mod api;
mod backend;
mod capabilities;
pub(crate) mod diagnose;
mod event;
mod forwarding;
mod hub;
mod key;
mod lock;
mod memory;
mod observers;
mod open;
mod options;
mod query;
mod records;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "redis")]
mod redlock;
mod request;
mod rule_store;
#[cfg(feature = "sqlite")]
mod sqlite;
mod url_suggestion;
mod view;
mod work;

pub use leasehold_core::id::IdError;
pub use leasehold_core::{
    Acquire, Annotation, ArrivalId, Claim, ClientId, CompletionKey, Grant, LatchCount, LatchStatus,
    LeaseId, Loss, Name, NameError, Namespace, NewNote, Notice, Op, Outcome, Removal, ScopeName,
    Slot, StoreTime, TokenCount, Ttl, Whom,
};

#[cfg(test)]
pub(crate) use self::api::fixture;
pub use self::api::{
    BoxFuture, Capabilities, Changed, ClientInfo, Event, EventScope, Feature, HolderInfo, Key,
    Keyspace, Listener, Listening, Page, Parts, Query, Reply, Request, Shard, Store, StoreKind,
    View, WaiterInfo, WakeupMode,
};
pub(crate) use self::api::{mismatch, unexpected};
#[doc(hidden)]
pub use self::backend::{Backend, ListenChange};
#[doc(hidden)]
pub use self::forwarding::ForwardingStore;
#[doc(hidden)]
pub use self::hub::Hub;
#[doc(hidden)]
pub use self::memory::Memory;
pub use self::memory::MemoryStore;
#[cfg(feature = "doctor")]
pub(crate) use self::open::diagnose;
pub use self::open::open;
#[cfg(feature = "redis")]
pub(crate) use self::open::open_redis;
#[doc(hidden)]
pub use self::open::{redacted_url, without_user};
pub use self::options::OpenOptions;
#[doc(hidden)]
pub use self::query::RunningQuery;
#[doc(hidden)]
pub use self::records::{ListPart, Record, Records, Transaction};
#[cfg(feature = "redis")]
pub use self::redis::RedisAddress;
#[cfg(feature = "redis")]
#[doc(hidden)]
pub use self::redis::RedisStore;
pub use self::rule_store::RuleStore;
#[cfg(feature = "sqlite")]
pub use self::sqlite::SqliteStore;
#[cfg(feature = "sqlite")]
#[doc(hidden)]
pub use self::sqlite::{Machine, Sqlite};
#[doc(hidden)]
pub use self::url_suggestion::distance;
#[doc(hidden)]
pub use self::work::{Failure, Work};
