//! Limiters for the batches to each shard of a store, so that a slow shard does not delay the others.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::store::Shard;
use leasehold_core::Batching;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::batch::PendingAction;

/// How many batches may be in flight on one limiter: one that the shard executes, and the next one.
pub(crate) const UNDER_WAY_MAX: u32 = 2;

/// The key of a limiter. Releases have their own, so that they do not wait for renewals: a waiter depends on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RouteKey {
    pub(crate) shard: Shard,
    pub(crate) release: bool,
}

/// The limiters of a store, created when they are first needed.
#[derive(Debug, Default)]
pub(crate) struct ShardLimiters(Mutex<HashMap<RouteKey, Arc<ShardLimiter>>>);

impl ShardLimiters {
    pub(crate) fn of(&self, way: RouteKey) -> Arc<ShardLimiter> {
        let mut limiters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(limiters.entry(way).or_default())
    }

    /// Drops all queued actions, when no task is left to send them.
    pub(crate) fn clear(&self) {
        let mut limiters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let dropped = std::mem::take(&mut *limiters);
        drop(limiters);
        dropped.values().for_each(|limiter| limiter.queue().clear());
    }
}

/// A queue of actions, and the permits for its batches.
#[derive(Debug)]
pub(crate) struct ShardLimiter {
    free: Semaphore,
    batching: Mutex<Batching>,
    /// The queued actions. They are cut into batches only when a permit is free: clients fall due one by one, and with
    /// a batch for each, the last would wait for as many round trips as there are clients.
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

    /// Queues actions.
    pub(crate) fn push(&self, pending_actions: Vec<PendingAction>) {
        self.queue().extend(pending_actions);
    }

    /// Removes the next batch from the queue. Empty if the queue is.
    pub(crate) fn next_batch(&self) -> Vec<PendingAction> {
        let mut queue = self.queue();
        let batching = self.batching.lock();
        let size = batching
            .unwrap_or_else(PoisonError::into_inner)
            .size(queue.len());
        let size = size.min(queue.len());
        queue.drain(..size).collect()
    }

    /// Waits until the queue is empty and no batch is in flight.
    pub(crate) async fn idle(&self) {
        loop {
            // The semaphore is never closed.
            let all = self.free.acquire_many(UNDER_WAY_MAX).await;
            if self.queue().is_empty() {
                return;
            }
            drop(all);
            tokio::task::yield_now().await;
        }
    }

    /// Waits for the permit of a batch.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.free.acquire().await.ok()
    }

    /// Records the round trip of a batch.
    pub(crate) fn answered(&self, actions: usize, took: Duration) {
        let mut batching = self.batching.lock().unwrap_or_else(PoisonError::into_inner);
        batching.answered(actions, took);
    }
}
