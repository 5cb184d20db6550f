//! The ways to the shards of a store: what happens on one does not concern the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::store::Shard;
use leasehold_core::Batching;
use tokio::sync::{Semaphore, SemaphorePermit};

/// How many batches may be under way on one lane: one that the shard works on, and one that comes next.
const UNDER_WAY_MAX: usize = 2;

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
}

/// One lane.
#[derive(Debug)]
pub(crate) struct Lane {
    free: Semaphore,
    batching: Mutex<Batching>,
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            free: Semaphore::new(UNDER_WAY_MAX),
            batching: Mutex::default(),
        }
    }
}

impl Lane {
    /// How many deeds the next batch takes at most.
    pub(crate) fn batch_max(&self) -> usize {
        let batching = self.batching.lock();
        batching.unwrap_or_else(PoisonError::into_inner).size()
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
