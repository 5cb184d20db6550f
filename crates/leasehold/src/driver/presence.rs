//! Writes the client info to the store, so that people can see which client holds a lock or waits for it.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use leasehold_core::ClientId;

use super::context::Context;
use super::primitives::{JoinHandle, Mutex, lock, report};
use crate::store::{ClientInfo, Keyspace};

/// How often the entry is written again while the client lives.
const INTERVAL: Duration = Duration::from_secs(30);

/// How long the entry outlives the last lease: long enough to look it up afterwards. A lease stays in a queue for two
/// ttls and a second after its last request, and is requested at least once in a ttl.
const RETENTION: Duration = Duration::from_secs(120);

pub(crate) struct Presence {
    space: Keyspace,
    client: ClientId,
    info: ClientInfo,
    work: Mutex<Work>,
}

#[derive(Default)]
struct Work {
    /// The longest ttl so far: the entry must outlive the longest lease.
    longest: Duration,
    task: Option<JoinHandle<()>>,
}

impl Presence {
    pub(crate) fn new(space: Keyspace, client: ClientId, info: ClientInfo) -> Self {
        Self {
            space,
            client,
            info,
            work: Mutex::default(),
        }
    }

    /// The description of this client.
    pub(crate) fn info(&self) -> &ClientInfo {
        &self.info
    }

    /// Lets the task go on when this is dropped.
    pub(super) fn detach(&mut self) {
        let work = self.work.get_mut().unwrap_or_else(PoisonError::into_inner);
        std::mem::forget(work.task.take());
    }

    /// Keeps the entry for as long as a lease of `ttl` may last, that is held or waits.
    ///
    /// Only the first lease, and one that is longer than all before, starts anything.
    pub(crate) fn extend(&self, context: &Context, ttl: Duration) {
        let mut work = lock(&self.work);
        if work.task.is_some() && ttl <= work.longest {
            return;
        }
        work.longest = work.longest.max(ttl);
        if let Some(task) = work.task.take() {
            task.abort();
        }
        let keep = work.longest + RETENTION;
        let request = self.info.describe(&self.space, self.client, keep);
        let (store, clock) = (Arc::clone(&context.store), Arc::clone(&context.clock));
        work.task = Some(context.runtime.spawn(async move {
            loop {
                let described = store.request(&request.key, request.op.clone()).await;
                if let Err(error) = described {
                    report(|| tracing::debug!(%error, "could not register the client"));
                }
                clock.sleep_until(clock.now().after(INTERVAL)).await;
            }
        }));
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let work = self.work.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = work.task.take() {
            task.abort();
        }
    }
}
