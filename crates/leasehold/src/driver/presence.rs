//! Writes down who this client is, so that people who look can see who holds a lock.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use leasehold_core::ClientId;

use super::Driver;
use super::sync::{JoinHandle, Mutex, lock, report};
use crate::store::{ClientInfo, Keyspace};

/// How often it is written again while the client lives.
const INTERVAL: Duration = Duration::from_secs(30);

/// How long the note outlives the last lease that was taken: long enough to ask afterwards.
const AFTER: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(crate) struct Presence {
    space: Keyspace,
    client: ClientId,
    about: ClientInfo,
    work: Mutex<Work>,
}

#[derive(Debug, Default)]
struct Work {
    /// The longest ttl asked for so far: the note must outlive the longest lease.
    longest: Duration,
    task: Option<JoinHandle<()>>,
}

impl Presence {
    pub(crate) fn new(space: Keyspace, client: ClientId, about: ClientInfo) -> Self {
        Self {
            space,
            client,
            about,
            work: Mutex::default(),
        }
    }

    /// Does not end its task when it is dropped.
    pub(super) fn keep(&mut self) {
        let work = self.work.get_mut().unwrap_or_else(PoisonError::into_inner);
        std::mem::forget(work.task.take());
    }

    /// Sees to it that the client is known for as long as a lease of `ttl` may last.
    ///
    /// Costs a look at a number; only the first lease and longer ones than before start anything.
    pub(crate) fn note(driver: &Arc<Driver>, ttl: Duration) {
        let presence = &driver.presence;
        let mut work = lock(&presence.work);
        if work.task.is_some() && ttl <= work.longest {
            return;
        }
        work.longest = work.longest.max(ttl);
        if let Some(task) = work.task.take() {
            task.abort();
        }
        let span = work.longest + AFTER;
        let driver_ref = Arc::downgrade(driver);
        work.task = Some(driver.runtime.spawn(async move {
            while let Some(driver) = driver_ref.upgrade() {
                let Self {
                    space,
                    client,
                    about,
                    ..
                } = &driver.presence;
                let written = driver
                    .store
                    .register_client(space, *client, about, span)
                    .await;
                if let Err(error) = written {
                    report(|| tracing::debug!(%error, "could not write down who this client is"));
                }
                let clock = Arc::clone(&driver.clock);
                drop(driver);
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
