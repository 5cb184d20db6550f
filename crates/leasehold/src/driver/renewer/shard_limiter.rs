//! The ways to the shards of a store: what happens on one does not concern the others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Batching;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::super::Route;
use super::super::sync::{Mutex, lock};

/// How many batches may be under way to one shard: one that it works on, and one that comes next. More
/// would keep it no busier, and others from getting a word in.
const UNDER_WAY_MAX: usize = 2;

/// A limiter for each shard that was ever needed.
#[derive(Debug, Default)]
pub(super) struct ShardLimiters(Mutex<HashMap<Route, Arc<ShardLimiter>>>);

impl ShardLimiters {
    pub(super) fn of(&self, route: Route) -> Arc<ShardLimiter> {
        Arc::clone(lock(&self.0).entry(route).or_default())
    }
}

/// The way to one shard.
#[derive(Debug)]
pub(super) struct ShardLimiter {
    free: Semaphore,
    batching: Mutex<Batching>,
}

impl Default for ShardLimiter {
    fn default() -> Self {
        Self {
            free: Semaphore::new(UNDER_WAY_MAX),
            batching: Mutex::default(),
        }
    }
}

impl ShardLimiter {
    /// How many leases each batch takes at most where so many are due.
    pub(super) fn batch_max(&self, due: usize) -> usize {
        lock(&self.batching).size(due)
    }

    /// Waits for the turn of a batch. It ends when what is answered is dropped.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.free.acquire().await.ok()
    }

    /// A batch of so many leases had its answer after this time.
    pub(super) fn answered(&self, leases: usize, took: Duration) {
        lock(&self.batching).answered(leases, took);
    }
}
