//! Limits the renewals in flight to each shard of a store. A slow shard does not delay the others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Batching;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::super::context::Route;
use super::super::sync::{Mutex, lock};

/// How many batches may be in flight to one shard: one that it works on, and one that comes next. More would
/// not keep it busier, and would delay other operations.
const IN_FLIGHT_MAX: usize = 2;

/// A limiter for each shard that was ever needed.
#[derive(Debug, Default)]
pub(super) struct ShardLimiters(Mutex<HashMap<Route, Arc<ShardLimiter>>>);

impl ShardLimiters {
    pub(super) fn of(&self, route: Route) -> Arc<ShardLimiter> {
        Arc::clone(lock(&self.0).entry(route).or_default())
    }
}

/// The limiter of one shard.
#[derive(Debug)]
pub(super) struct ShardLimiter {
    free: Semaphore,
    batching: Mutex<Batching>,
}

impl Default for ShardLimiter {
    fn default() -> Self {
        Self {
            free: Semaphore::new(IN_FLIGHT_MAX),
            batching: Mutex::default(),
        }
    }
}

impl ShardLimiter {
    /// How many leases a batch has at most if so many are due.
    pub(super) fn batch_max(&self, due: usize) -> usize {
        lock(&self.batching).size(due)
    }

    /// Waits for the permit to send a batch.
    pub(super) async fn acquire(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.free.acquire().await.ok()
    }

    /// A batch of so many leases was answered after this time.
    pub(super) fn answered(&self, leases: usize, took: Duration) {
        lock(&self.batching).answered(leases, took);
    }
}
