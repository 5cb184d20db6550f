//! A permit that is acquired and released again and again, and counted in shared memory while the process relies on it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
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
    /// The number of its bit in the shared number: it is set while the process relies on a permit.
    pub(crate) bit: u32,
    pub(crate) inside: PathBuf,
}

/// Acquires and releases a permit until the commands end.
pub(super) async fn run(shared: &Arc<Shared>, config: &PermitsConfig, commands: Commands) {
    let Some((client, stop)) = shared.begin(commands, |_| ()).await else {
        return;
    };
    let semaphore = client.semaphore("permits", config.permits).unwrap();
    let (inside, mut rng) = (shared_number(&config.inside), Rng::new());
    while !stop.is_cancelled() {
        let hold = shared.request(semaphore.name(), false, None);
        let (weight, limit) = (1, config.permits);
        shared.record(hold, HoldEvent::Shares(Share::Permits { weight, limit }));
        if let Some(permit) = acquire(shared, &semaphore, hold).await {
            let readings = rng.u32(5..=READINGS_MAX);
            keep(shared, config, inside, hold, &permit, readings).await;
            shared.record(hold, HoldEvent::Releasing);
            let outcome = super::outcome(&permit.release().await);
            shared.record(hold, HoldEvent::Released { outcome });
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
    inside: &AtomicU64,
    hold: u64,
    permit: &Permit,
    readings: u32,
) {
    let bit = 1 << config.bit;
    for reading in 0..readings {
        let (before, state) = (clock::now(), permit.state());
        if reading == 0 || state.is_lost() {
            shared.observe(hold, before, state, ObservationKind::Check);
        }
        if state.is_lost() {
            break;
        }
        if reading == 0 {
            let processes = inside.fetch_or(bit, Ordering::SeqCst) | bit;
            let count = processes.count_ones();
            assert!(count <= config.permits, "{count} processes have a permit");
        }
        tokio::time::sleep(INTERVAL).await;
    }
    inside.fetch_and(!bit, Ordering::SeqCst);
}
