//! What a store can do, and what each store refuses.

use std::fmt;
use std::time::Duration;

use leasehold_core::acquisition::POLL_MAX;
use leasehold_core::record::LeaseKind;
use leasehold_core::{Acquire, Name, Op, Removal, Slot, Ttl};

use super::event::WakeupMode;
use super::request::{Reply, Request};
use super::view::{Parts, Query};
use crate::{Error, ErrorKind, Result};

/// What a store can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// What it refuses.
    pub kind: StoreKind,
    /// How a refused client is notified that it should try again. This may change at run time.
    pub wakeup: WakeupMode,
    /// Whether an acquisition may be repeated under its lease id after a refusal or without a reply. If
    /// not, each attempt needs a new id, and the old one must be released.
    pub idempotent_acquire: bool,
    /// The longest interval between two requests of a waiter that is not notified.
    pub longest_poll: Duration,
    /// How many calls at once keep a shard of the store busy. 1: larger batches are better than several calls.
    pub parallel_calls: u64,
    /// The longest time that it keeps a record without a renewal.
    pub longest_ttl: Ttl,
}

impl Capabilities {
    /// Those of a store that grants the lock to waiters, as long as it can notify them.
    #[cfg(any(
        feature = "sqlite",
        feature = "postgres",
        feature = "etcd",
        feature = "zookeeper"
    ))]
    pub(crate) const fn notifying(kind: StoreKind, is_notified: bool) -> Self {
        let wakeup = match is_notified {
            true => WakeupMode::Grants,
            false => WakeupMode::Nothing,
        };
        Self::new(kind, wakeup)
    }

    /// Those of a store that keeps each record in one place.
    pub(crate) const fn new(kind: StoreKind, wakeup: WakeupMode) -> Self {
        Self {
            kind,
            wakeup,
            idempotent_acquire: true,
            longest_poll: POLL_MAX,
            parallel_calls: 1,
            longest_ttl: Ttl::MAX,
        }
    }
}

/// The stores, as far as they refuse different features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreKind {
    /// The memory of this process.
    Memory,
    /// A file.
    Sqlite,
    /// A database.
    Postgres,
    /// An etcd cluster.
    Etcd,
    /// A ZooKeeper ensemble.
    Zookeeper,
    /// A bucket of an object store.
    Objects,
    /// One server, or the master that sentinels name.
    Redis,
    /// The nodes of a cluster.
    Cluster,
    /// Many masters.
    Masters,
}

/// What some store refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Feature {
    /// To wait until replicas have acknowledged a change.
    Replicas,
    /// Records of completed runs.
    Completions,
    /// Latches.
    Latches,
    /// Semaphores.
    Semaphores,
    /// Read-write locks.
    RwLocks,
}

impl StoreKind {
    /// Whether a lease is over a ttl after another client has seen it first, and not before: there is no clock of the store.
    pub(crate) const fn counts_from_sight(self) -> bool {
        matches!(self, Self::Etcd | Self::Zookeeper | Self::Objects)
    }

    /// Why this store refuses a feature. `None`: it has it.
    #[must_use]
    pub const fn refusal(self, feature: Feature) -> Option<&'static str> {
        match (feature, self) {
            (Feature::Replicas, Self::Redis) => None,
            (Feature::Replicas, Self::Postgres) => Some(
                "this store leaves it to the server to wait for standbys; set its synchronous_standby_names, and leave the \
                 durability (replicas) unset",
            ),
            (Feature::Replicas, _) => Some(
                "this store does not wait for replicas; leave the durability (replicas) unset, or use redis:// or \
                 redis+sentinel://",
            ),
            (Feature::Completions, Self::Masters) => Some(
                "this store does not keep completion records, so a run would be repeated; use any other store, such as \
                 PostgreSQL, etcd or a single Redis server",
            ),
            (Feature::Latches, Self::Masters) => Some(
                "this store keeps no latches: over many masters, two members could be counted by different masters, and \
                 nobody would see both; use any other store, such as PostgreSQL, etcd or a single Redis server",
            ),
            (Feature::Semaphores, Self::Masters) => Some(
                "this store keeps no semaphores: three masters with two permits each would grant them to three clients; \
                 use any other store, such as PostgreSQL, etcd or a single Redis server",
            ),
            (Feature::RwLocks, Self::Masters) => Some(
                "this store keeps no read-write locks: over many masters, readers would have to write their token back to a \
                 majority, and a later writer could draw an equal one; use any other store, such as PostgreSQL, etcd or \
                 a single Redis server",
            ),
            (
                Feature::Completions | Feature::Latches | Feature::Semaphores | Feature::RwLocks,
                _,
            ) => None,
        }
    }

    /// Whether this store has a feature.
    #[must_use]
    pub const fn has(self, feature: Feature) -> bool {
        self.refusal(feature).is_none()
    }

    /// Checks that this store has a feature.
    pub(crate) fn check(
        self,
        feature: Feature,
        store: &(impl fmt::Display + ?Sized),
    ) -> Result<()> {
        let refused = |message| Error::new(ErrorKind::Unsupported, message).at_store(store);
        self.refusal(feature)
            .map_or(Ok(()), |message| Err(refused(message)))
    }

    /// Checks that this store has what a request needs.
    fn check_request(self, request: &Request, store: &impl fmt::Display) -> Result<()> {
        let needed = needed(request).into_iter().flatten();
        let mut checked = needed.map(|feature| self.check(feature, store));
        checked.find(Result::is_err).unwrap_or(Ok(()))
    }

    /// Checks that this store has what a query needs.
    pub(super) fn check_query(self, query: &Query, store: &impl fmt::Display) -> Result<()> {
        let feature = match query {
            Query::Name { parts, .. } => match parts {
                Parts::Latch => Some(Feature::Latches),
                Parts::Annotation(slot) | Parts::State(slot) => of_slot(slot),
                Parts::Lease | Parts::Holder | Parts::Waiters => None,
            },
            Query::Completions(_) => Some(Feature::Completions),
            Query::Durability(durability) if durability.is_replicated() => Some(Feature::Replicas),
            Query::Durability(_) | Query::Names(_) | Query::Client(..) => None,
        };
        let checked = feature.map_or(Ok(()), |feature| self.check(feature, store));
        checked.map_err(|error| match query {
            Query::Name { key, .. } => error.for_lock(&key.name),
            _ => error,
        })
    }

    /// Rejects the requests of a batch that need what this store refuses, and applies the others. An error names the lock
    /// and the store.
    pub(super) async fn apply<F: Future<Output = Vec<Reply>>>(
        self,
        batch: Vec<Request>,
        store: &impl fmt::Display,
        apply: impl FnOnce(Vec<Request>) -> F,
    ) -> Vec<Reply> {
        let names: Vec<_> = batch.iter().map(|it| it.key.name.clone()).collect();
        let check = |request| self.check_request(request, store);
        let replies: Vec<_> = if batch.iter().all(|request| check(request).is_ok()) {
            apply(batch).await
        } else {
            let checked: Vec<_> = batch.iter().map(check).collect();
            let accepted = batch.into_iter().zip(&checked);
            let accepted =
                accepted.filter_map(|(request, checked)| checked.is_ok().then_some(request));
            let mut applied = apply(accepted.collect()).await.into_iter();
            let replies = checked.into_iter().filter_map(|checked| match checked {
                Ok(()) => applied.next(),
                Err(error) => Some(Reply::Rejected(error)),
            });
            replies.collect()
        };
        let named = |(reply, name): (Reply, &Name)| {
            reply.map_error(|error| error.for_lock(name).at_store(store))
        };
        replies.into_iter().zip(&names).map(named).collect()
    }
}

/// The features that a request needs.
fn needed(request: &Request) -> [Option<Feature>; 2] {
    let feature = match &request.op {
        Op::Acquire(Acquire { claim, .. }) | Op::Convert { claim, .. } => match claim.kind() {
            LeaseKind::Semaphore => Some(Feature::Semaphores),
            LeaseKind::RwLock => Some(Feature::RwLocks),
            LeaseKind::Mutex => request.op.slot().as_ref().and_then(of_slot),
        },
        Op::SetLimit { .. } => Some(Feature::Semaphores),
        Op::Arrive { .. } | Op::Remove(Removal::Latch) => Some(Feature::Latches),
        op => op.slot().as_ref().and_then(of_slot),
    };
    let replicated = request.durability.is_replicated();
    [feature, replicated.then_some(Feature::Replicas)]
}

fn of_slot(slot: &Slot) -> Option<Feature> {
    (*slot != Slot::Value).then_some(Feature::Completions)
}
