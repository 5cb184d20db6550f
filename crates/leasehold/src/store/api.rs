//! The interface that every store implements. This file imports no store.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Weak;
use std::time::Duration;

#[cfg(feature = "redis")]
use leasehold_core::Removal;
use leasehold_core::{ClientId, LeaseId, Mismatch, Op, Outcome, Slot, StoreTime, Ttl};

pub use super::event::{Event, EventScope, Listener, WakeupMode};
#[cfg(any(test, all(feature = "__fuzz", feature = "redis")))]
pub(crate) use super::key::fixture;
pub use super::key::{Key, Keyspace, Shard};
pub use super::view::{Changed, ClientInfo, HolderInfo, Page, Parts, Query, View, WaiterInfo};
use crate::{Durability, Error, ErrorKind, Result};

/// A boxed future. An allocation is cheap beside a round trip, and the store is chosen at run time.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub(super) mod private {
    /// Keeps [`Store`](super::Store) from being implemented outside of this crate.
    pub trait Sealed {}
}

/// A keeper of lock records.
///
/// Its `Display` is its URL without a password.
///
/// This trait is sealed: the interface between the client and its stores is not a promise yet.
///
/// # Cancel safety
///
/// A dropped future of [`apply`](Store::apply) or [`register_client`](Store::register_client) may or may not be applied,
/// now or later. The others change nothing.
pub trait Store: private::Sealed + fmt::Display + fmt::Debug + Send + Sync + 'static {
    /// Applies a batch in order, in as few round trips as possible. Returns one reply per request, in the
    /// same order, within the response timeout.
    ///
    /// A batch of only renewals contains each record at most once, and may be applied in any order.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not be applied, now or later. Treat it as [`Reply::Unknown`].
    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>>;

    /// What this store can do at this moment.
    fn capabilities(&self) -> Capabilities;

    /// The shard that keeps a record. Shards fail independently: renewals of different shards never
    /// share a batch and never wait for each other.
    fn shard(&self, key: &Key) -> Shard {
        let _ = key;
        Shard(0)
    }

    /// What may remain of a lease whose acquisition got a reply without a grant and is not repeated.
    fn leftover(&self, lease: LeaseId) -> Leftover {
        let _ = lease;
        Leftover::Unknown
    }

    /// Subscribes a client to its events for as long as the listener lives. Only the leases of a client
    /// with a listener can wait in queues; other waiters are skipped.
    ///
    /// Does no I/O: the subscription travels with the next batch.
    fn listen(&self, space: &Keyspace, client: ClientId, listener: Weak<dyn Listener>);

    /// Ends the subscription of a client.
    fn forget(&self, client: ClientId);

    /// Reads the state of names or clients. With `watch` in the query, the reader is registered before it is read, so that
    /// no change is missed.
    ///
    /// # Errors
    ///
    /// The store's error; [`ErrorKind::Unsupported`] for what this store does not keep, [`ErrorKind::Conflict`] for a name
    /// that is used otherwise.
    fn read(&self, query: Query) -> BoxFuture<'_, Result<Page>>;

    /// Stores the description of a client for `ttl`. It is shown to people; no rule depends on it.
    ///
    /// # Errors
    ///
    /// The store's error.
    fn register_client<'a>(
        &'a self,
        space: &'a Keyspace,
        client: ClientId,
        info: &'a ClientInfo,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<()>>;
}

/// What a store can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// How a refused client is notified that it should try again. This may change at run time.
    pub wakeup: WakeupMode,
    /// Whether an acquisition may be repeated under its lease id after a refusal or without a reply. If
    /// not, each attempt needs a new id, and the old one must be released.
    pub idempotent_acquire: bool,
    /// Whether replicas can acknowledge changes. If not, the only durability is [`Durability::None`].
    pub replicas: bool,
    /// How many calls at once keep a shard of the store busy. 1: larger batches are better than several calls.
    pub parallel_calls: u64,
    /// The longest time that it keeps a record without a renewal.
    pub longest_ttl: Ttl,
    /// Whether it keeps completion records of jobs.
    pub completions: bool,
    /// Whether it keeps latches.
    pub latches: bool,
}

impl Capabilities {
    /// Those of a single server without replicas.
    pub(crate) const fn new(wakeup: WakeupMode) -> Self {
        Self {
            wakeup,
            idempotent_acquire: true,
            replicas: false,
            parallel_calls: 1,
            longest_ttl: Ttl::MAX,
            completions: true,
            latches: true,
        }
    }
}

/// What may remain in a store of an acquisition without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Leftover {
    /// Nothing: no release is needed.
    None,
    /// Grants of a minority, and no request is in flight: one release frees them.
    Granted,
    /// Unknown: the acquisition may still be applied.
    Unknown,
}

/// An operation on the record of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// The record.
    pub key: Key,
    /// The operation.
    pub op: Op,
    /// The replicas that must acknowledge a grant or renewal before it takes effect. All requests of one
    /// lease have the same durability.
    pub durability: Durability,
}

impl Request {
    /// An operation that needs no replicas.
    #[must_use]
    pub const fn new(key: Key, op: Op) -> Self {
        Self {
            key,
            op,
            durability: Durability::None,
        }
    }

    /// The same request with another durability.
    #[must_use]
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Whether this is an acquisition.
    #[cfg(feature = "redis")]
    pub(crate) const fn acquires(&self) -> bool {
        matches!(self.op, Op::Acquire { .. })
    }
}

/// The result of a request. Exhaustive, as a fourth case is impossible.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The request was applied.
    Applied {
        /// The outcome by the rule.
        outcome: Outcome,
        /// The store's time of the change. `None`: a release, for which it did not read its clock.
        now: Option<StoreTime>,
    },
    /// The request was certainly not applied.
    Rejected(Error),
    /// There was no reply: the request may have been applied, or may still be.
    Unknown(Error),
}

impl Reply {
    /// The outcome, or the error.
    pub(crate) fn outcome(&self) -> Result<&Outcome, &Error> {
        match self {
            Self::Applied { outcome, .. } => Ok(outcome),
            Self::Rejected(error) | Self::Unknown(error) => Err(error),
        }
    }

    /// The same reply with another error, if it is one.
    pub(crate) fn map_error(self, map: impl FnOnce(Error) -> Error) -> Self {
        match self {
            Self::Applied { .. } => self,
            Self::Rejected(error) => Self::Rejected(map(error)),
            Self::Unknown(error) => Self::Unknown(map(error)),
        }
    }
}

/// Refuses a whole batch if one of its requests needs replicas, for stores that have none.
pub(super) fn refuse_replicated(batch: &[Request], store: &dyn fmt::Display) -> Option<Vec<Reply>> {
    if !batch
        .iter()
        .any(|request| request.durability.is_replicated())
    {
        return None;
    }
    let refused = |request: &Request| not_replicated(store).for_lock(&request.key.name);
    Some(batch.iter().map(refused).map(Reply::Rejected).collect())
}

/// Checks a durability for a store that has no replicas.
pub(super) fn check_unreplicated(
    durability: Durability,
    store: &(impl fmt::Display + ?Sized),
) -> Result<Page> {
    match durability.is_replicated() {
        true => Err(not_replicated(store)),
        false => Ok(Page::default()),
    }
}

/// The error of a store without replicas.
pub(crate) fn not_replicated(store: &(impl fmt::Display + ?Sized)) -> Error {
    let message = "this store does not wait for replicas; leave the durability (replicas) unset, or use redis:// or \
                   redis+sentinel://";
    Error::new(ErrorKind::Unsupported, message).at_store(store)
}

/// The reply to a request that the rule has decided. A name that is used otherwise is a conflict, and nothing was
/// applied.
pub(super) fn decided(key: &Key, outcome: Outcome, now: StoreTime) -> Reply {
    match outcome {
        Outcome::Mismatch(mismatch) => {
            Reply::Rejected(self::mismatch(mismatch).for_lock(&key.name))
        }
        outcome => Reply::Applied {
            outcome,
            now: Some(now),
        },
    }
}

/// Whether an operation is about a latch.
#[cfg(feature = "redis")]
pub(super) const fn is_of_latch(op: &Op) -> bool {
    matches!(op, Op::Arrive { .. } | Op::Remove(Removal::Latch))
}

/// The note that an operation writes or removes.
#[cfg(feature = "redis")]
pub(super) const fn slot(op: &Op) -> Option<&Slot> {
    match op {
        Op::WriteNote { note, .. }
        | Op::Release {
            note: Some(note), ..
        } => Some(&note.slot),
        Op::Remove(Removal::Note(slot)) => Some(slot),
        _ => None,
    }
}

/// The error of a store that does not keep notes of a slot.
pub(crate) fn no_note(store: &(impl fmt::Display + ?Sized), slot: &Slot) -> Error {
    let message = match slot {
        Slot::Value => "this store does not keep the values of leaders",
        Slot::Period | Slot::Key(_) => {
            "this store does not keep completion records, so a run would be repeated; use a single Redis server, Sentinel, \
             a cluster or SQLite"
        }
    };
    Error::new(ErrorKind::Unsupported, message).at_store(store)
}

/// The error of a store that keeps no latches.
pub(crate) fn no_latch(store: &(impl fmt::Display + ?Sized)) -> Error {
    let message = "this store keeps no latches: over many masters, two members could be counted by different masters, and \
                   nobody would see both; use a single Redis server, Sentinel, a cluster or SQLite";
    Error::new(ErrorKind::Unsupported, message).at_store(store)
}

/// The error of a name that is used otherwise.
pub(crate) fn mismatch(mismatch: Mismatch) -> Error {
    Error::new(ErrorKind::Conflict, mismatch.to_string())
}

/// The error of an operation on a lock whose name is used as a latch.
#[cfg(feature = "redis")]
pub(crate) fn used_as_latch() -> Error {
    mismatch(Mismatch::Kind(leasehold_core::record::Kind::Latch))
}
