//! The ways to the shards of a store: what happens on one does not concern the others.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::store::Shard;
use leasehold_core::Batching;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::batch::PendingAction;

/// How many batches may be under way on one limiter: one that the shard works on, and one that comes next.
pub(crate) const UNDER_WAY_MAX: u32 = 2;

/// Which limiter a action goes by. Releases do not wait for renewals: somebody else waits for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RouteKey {
    pub(crate) shard: Shard,
    pub(crate) release: bool,
}

/// A limiter for each way that was ever needed.
#[derive(Debug, Default)]
pub(crate) struct ShardLimiters(Mutex<HashMap<RouteKey, Arc<ShardLimiter>>>);

impl ShardLimiters {
    pub(crate) fn of(&self, way: RouteKey) -> Arc<ShardLimiter> {
        let mut limiters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(limiters.entry(way).or_default())
    }

    /// Drops what waits: nobody sends it any more.
    pub(crate) fn clear(&self) {
        let mut limiters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let dropped = std::mem::take(&mut *limiters);
        drop(limiters);
        dropped.values().for_each(|limiter| limiter.queue().clear());
    }
}

/// One limiter.
#[derive(Debug)]
pub(crate) struct ShardLimiter {
    free: Semaphore,
    batching: Mutex<Batching>,
    /// What waits for a turn. It is cut into batches when it is their turn: clients fall due one by one, and a
    /// batch for each would wait for as many answers as there are clients.
    queue: Mutex<VecDeque<PendingAction>>,
}

impl Default for ShardLimiter {
    fn default() -> Self {
        Self {
            free: Semaphore::new(UNDER_WAY_MAX as usize),
            batching: Mutex::default(),
            queue: Mutex::default(),
        }
    }
}

impl ShardLimiter {
    fn queue(&self) -> MutexGuard<'_, VecDeque<PendingAction>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to what waits.
    pub(crate) fn push(&self, pending_actions: Vec<PendingAction>) {
        self.queue().extend(pending_actions);
    }

    /// The next batch. Empty: nothing waits.
    pub(crate) fn next_batch(&self) -> Vec<PendingAction> {
        let mut queue = self.queue();
        let batching = self.batching.lock();
        let size = batching
            .unwrap_or_else(PoisonError::into_inner)
            .size(queue.len());
        let size = size.min(queue.len());
        queue.drain(..size).collect()
    }

    /// Waits until nothing waits and nothing is under way.
    pub(crate) async fn idle(&self) {
        loop {
            // It is never closed.
            let all = self.free.acquire_many(UNDER_WAY_MAX).await;
            if self.queue().is_empty() {
                return;
            }
            drop(all);
            tokio::task::yield_now().await;
        }
    }

    /// Waits for the turn of a batch. It ends when what is answered is dropped.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.free.acquire().await.ok()
    }

    /// A batch of so many actions had its answer after this time.
    pub(crate) fn answered(&self, actions: usize, took: Duration) {
        let mut batching = self.batching.lock().unwrap_or_else(PoisonError::into_inner);
        batching.answered(actions, took);
    }
}
