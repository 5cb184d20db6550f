//! A permit that is acquired and released again and again, and counted in shared memory while the process relies on it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::{Permit, Semaphore};
use leasehold_testkit::helper::Commands;
use leasehold_testkit::shared_number;
use serde::{Deserialize, Serialize};

use super::{RETRY_INTERVAL, SHUTDOWN_TIMEOUT, Shared};
use crate::clock;
use crate::history::{Event, HoldEvent, ObservationKind, Share};

/// How long a process waits for a permit before it tries again.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How often a holder reads the state of its lease, and how many times at most.
const INTERVAL: Duration = Duration::from_millis(20);
const READINGS_MAX: u32 = 15;

/// The semaphore, and the process among those that share it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PermitsConfig {
    pub(crate) permits: u32,
    /// The bit of the process in the number of those that rely on a permit. 0: it is not counted.
    pub(crate) bit: u64,
}

/// The processes that rely on a permit: a number in shared memory, with a bit for each of them.
pub(crate) fn relying(directory: &Path) -> &'static AtomicU64 {
    shared_number(&directory.join("relying"))
}

/// Acquires and releases a permit until the commands end.
pub(super) async fn run(shared: &Arc<Shared>, config: PermitsConfig, commands: Commands) {
    let Some((client, stop)) = shared.begin(commands, |_| ()).await else {
        return;
    };
    let semaphore = client.semaphore("permits", config.permits).unwrap();
    let relying = relying(&shared.config.directory);
    while !stop.is_cancelled() {
        let hold = shared.request(semaphore.name(), false, None);
        let (weight, limit) = (1, config.permits);
        shared.record(hold, HoldEvent::Shares(Share::Permits { weight, limit }));
        if let Some(permit) = acquire(shared, &semaphore, hold).await {
            keep(shared, &config, relying, hold, &permit).await;
            relying.fetch_and(!config.bit, Ordering::SeqCst);
            shared.release(hold, permit.release()).await;
        }
    }
    let released = client.shutdown(SHUTDOWN_TIMEOUT).await.is_ok();
    shared.journal.record(&Event::Ended { released });
}

async fn acquire(shared: &Shared, semaphore: &Semaphore, hold: u64) -> Option<Permit> {
    let reason = match semaphore.acquire_timeout(TIMEOUT).await {
        Ok(Some(permit)) => {
            shared.record(hold, super::granted(&permit, shared.config.ttl_ms));
            return Some(permit);
        }
        Ok(None) => "not free".to_owned(),
        Err(error) => {
            tokio::time::sleep(RETRY_INTERVAL).await;
            error.to_string()
        }
    };
    shared.record(hold, HoldEvent::NotGranted { reason });
    None
}

/// Relies on a permit while it is held. A panic is a violation in the history.
async fn keep(
    shared: &Shared,
    config: &PermitsConfig,
    relying: &AtomicU64,
    hold: u64,
    permit: &Permit,
) {
    for reading in 0..fastrand::u32(5..=READINGS_MAX) {
        let (before, state) = (clock::now(), permit.state());
        if reading == 0 || state.is_lost() {
            shared.observe(hold, before, state, ObservationKind::Check);
        }
        if state.is_lost() {
            return;
        }
        let processes = relying.fetch_or(config.bit, Ordering::SeqCst) | config.bit;
        let count = processes.count_ones();
        assert!(
            count <= config.permits,
            "{count} processes rely on a permit"
        );
        tokio::time::sleep(INTERVAL).await;
    }
}
