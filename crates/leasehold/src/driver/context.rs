//! The context that all parts of a driver share.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::acquisition::RunRequest;
use leasehold_core::{Access, Claim, RenewalOptions};

use super::primitives::Runtime;
use crate::clock::Clock;
use crate::fork::Process;
use crate::store::{EventScope, Key, Request, Shard, Store};
use crate::{Durability, Error};

/// The surroundings of a client: its store, its clock, its runtime and its process.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) runtime: Runtime,
    pub(crate) process: Process,
    /// Whether the store accepts repeated acquires of one lease id.
    pub(crate) idempotent: bool,
    /// The longest interval between two requests of a waiter that is not notified.
    pub(crate) longest_poll: Duration,
    /// The number of stripes of a shard: as many as the store can have calls at once.
    stripes: u64,
}

/// What a lease is for, and how it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AcquireOptions {
    pub(crate) lease: RenewalOptions,
    /// The replicas that must acknowledge the grant and each renewal.
    pub(crate) durability: Durability,
    /// The share of the lock that the lease has.
    pub(crate) claim: Claim,
    /// The run of a job, which may be complete.
    pub(crate) run: Option<Arc<RunRequest>>,
}

impl AcquireOptions {
    /// Whether others may hold the lock at the same time.
    pub(crate) fn is_shared(&self) -> bool {
        self.claim != Claim::Mutex
    }

    /// Whether it is for a reader, which may join other readers of this process. A fixed lease ends for each at another
    /// time.
    pub(crate) fn is_reader(&self) -> bool {
        self.claim == Claim::Access(Access::Read) && self.lease.fixed.is_none()
    }
}

/// Which queue of operations a request joins. An operation delays only those on the same route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Route {
    pub(crate) shard: Shard,
    /// The part of the names of the shard. Operations on a name stay in order, those of different stripes do not.
    pub(crate) stripe: u64,
    /// Whether the store waits for replicas.
    pub(crate) replicated: bool,
}

impl Route {
    /// The first route of most clients, and the only one if the store is better served by one call at a time.
    pub(crate) const FIRST: Self = Self {
        shard: Shard(0),
        stripe: 0,
        replicated: false,
    };
}

impl Context {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, runtime: Runtime) -> Self {
        let capabilities = store.capabilities();
        Self {
            idempotent: capabilities.idempotent_acquire,
            longest_poll: capabilities.longest_poll,
            stripes: capabilities.parallel_calls,
            store,
            clock,
            runtime,
            process: Process::current(),
        }
    }

    /// The shard that keeps a record at this moment. A store that panics here may panic again when a
    /// request is sent, where that is handled.
    pub(crate) fn shard(&self, key: &Key) -> Shard {
        catch_unwind(AssertUnwindSafe(|| self.store.shard(key))).unwrap_or(Shard(0))
    }

    /// The route of renewals. They need no order, and larger batches cost the store less, so all have the first stripe.
    pub(crate) fn renewal_route(&self, key: &Key, durability: Durability) -> Route {
        Route {
            shard: self.shard(key),
            stripe: 0,
            replicated: durability.is_replicated(),
        }
    }

    /// The route of a request. All requests for a name that do not wait for replicas have one route.
    pub(crate) fn route(&self, request: &Request) -> Route {
        let route = self.renewal_route(&request.key, request.durability);
        // One call at a time waits for replicas.
        if route.replicated || self.stripes <= 1 {
            return route;
        }
        let mut hasher = DefaultHasher::new();
        request.key.name.hash(&mut hasher);
        Route {
            stripe: hasher.finish() % self.stripes,
            ..route
        }
    }

    /// Whether an event of this scope concerns a record.
    pub(crate) fn concerns(&self, scope: &EventScope, key: &Key) -> bool {
        match scope {
            EventScope::Store => true,
            EventScope::Shard(shard) => self.shard(key) == *shard,
            EventScope::Record(record) => key == record,
        }
    }

    /// Names the lock and the store in an error.
    pub(crate) fn name_error(&self, error: Error, key: &Key) -> Error {
        error.for_lock(&key.name).at_store(&self.store)
    }
}
