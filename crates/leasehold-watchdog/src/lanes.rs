//! The ways to the shards of a store: what happens on one does not concern the others.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::store::Shard;
use leasehold_core::Batching;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::batch::Errand;

/// How many batches may be under way on one lane: one that the shard works on, and one that comes next.
pub(crate) const UNDER_WAY_MAX: u32 = 2;

/// Which lane a deed goes by. Releases do not wait for renewals: somebody else waits for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Way {
    pub(crate) shard: Shard,
    pub(crate) release: bool,
}

/// A lane for each way that was ever needed.
#[derive(Debug, Default)]
pub(crate) struct Lanes(Mutex<HashMap<Way, Arc<Lane>>>);

impl Lanes {
    pub(crate) fn of(&self, way: Way) -> Arc<Lane> {
        let mut lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(lanes.entry(way).or_default())
    }

    /// Drops what waits: nobody sends it any more.
    pub(crate) fn clear(&self) {
        let mut lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let dropped = std::mem::take(&mut *lanes);
        drop(lanes);
        dropped.values().for_each(|lane| lane.queue().clear());
    }
}

/// One lane.
#[derive(Debug)]
pub(crate) struct Lane {
    free: Semaphore,
    batching: Mutex<Batching>,
    /// What waits for a turn. It is cut into batches when it is their turn: clients fall due one by one, and a
    /// batch for each would wait for as many answers as there are clients.
    queue: Mutex<VecDeque<Errand>>,
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            free: Semaphore::new(UNDER_WAY_MAX as usize),
            batching: Mutex::default(),
            queue: Mutex::default(),
        }
    }
}

impl Lane {
    fn queue(&self) -> MutexGuard<'_, VecDeque<Errand>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to what waits.
    pub(crate) fn push(&self, errands: Vec<Errand>) {
        self.queue().extend(errands);
    }

    /// The next batch. Empty: nothing waits.
    pub(crate) fn next_batch(&self) -> Vec<Errand> {
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

    /// A batch of so many deeds had its answer after this time.
    pub(crate) fn answered(&self, deeds: usize, took: Duration) {
        let mut batching = self.batching.lock().unwrap_or_else(PoisonError::into_inner);
        batching.answered(deeds, took);
    }
}
