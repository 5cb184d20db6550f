//! What the other crates of this project need of stores. Not part of the public API.

pub use leasehold_core::id::IdError;
pub use leasehold_core::{
    Access, Acquire, Annotation, ArrivalId, Claim, ClientId, CompletionKey, Grant, LatchCount,
    LatchStatus, LeaseId, Loss, Name, NameError, Namespace, NewNote, Notice, Op, Outcome, Removal,
    ScopeName, Slot, StoreTime, TokenCount, Ttl, Whom,
};

pub use super::api::{
    BoxFuture, Capabilities, Changed, ClientInfo, Event, EventScope, Feature, HolderInfo, Key,
    Keyspace, Listener, Listening, Page, Parts, Query, Reply, Request, Shard, Store, StoreKind,
    Usage, View, WaiterInfo, WakeupMode,
};
pub use super::backend::{Backend, ListenChange};
#[cfg(feature = "etcd")]
pub use super::etcd::EtcdStore;
pub use super::forwarding::ForwardingStore;
pub use super::hub::Hub;
pub use super::into_store::IntoStore;
pub use super::memory::{Memory, MemoryStore};
pub use super::open::{open, open_with, redacted_url, without_user};
pub use super::options::OpenOptions;
#[cfg(feature = "postgres")]
pub use super::postgres::{Postgres, PostgresStore};
pub use super::query::RunningQuery;
pub use super::records::{ListPart, Record, Records, Transaction};
#[cfg(feature = "redis")]
pub use super::redis::{RedisStore, Script as RedisScript};
pub use super::rule_store::RuleStore;
#[cfg(feature = "sqlite")]
pub use super::sqlite::{Machine, Sqlite, SqliteStore};
pub use super::url_suggestion::distance;
pub use super::work::{Failure, Work};
#[cfg(feature = "zookeeper")]
pub use super::zookeeper::ZookeeperStore;
