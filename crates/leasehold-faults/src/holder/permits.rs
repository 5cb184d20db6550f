//! A permit that is acquired and released again and again.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use leasehold::{Permit, Semaphore};
use leasehold_testkit::helper::Commands;

use super::{RETRY_INTERVAL, SHUTDOWN_TIMEOUT, Shared};
use crate::clock;
use crate::history::{Event, HoldEvent, ObservationKind, Share};

/// How long a process waits for a permit before it tries again.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How often a holder reads the state of its lease, and how many times at most.
const INTERVAL: Duration = Duration::from_millis(20);
const READINGS_MAX: u32 = 15;

/// Acquires and releases a permit until the commands end.
pub(super) async fn run(shared: &Arc<Shared>, permits: u32, commands: Commands) {
    let Some((client, stop)) = shared.begin(commands, |_| ()).await else {
        return;
    };
    let semaphore = client.semaphore("permits", permits).unwrap();
    let mut rng = Rng::new();
    while !stop.is_cancelled() {
        let hold = shared.request(semaphore.name(), false, None);
        let (weight, limit) = (1, permits);
        shared.record(hold, HoldEvent::Shares(Share::Permits { weight, limit }));
        if let Some(permit) = acquire(shared, &semaphore, hold).await {
            let readings = rng.u32(5..=READINGS_MAX);
            keep(shared, hold, &permit, readings).await;
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

/// Relies on a permit while it is held.
async fn keep(shared: &Shared, hold: u64, permit: &Permit, readings: u32) {
    for reading in 0..readings {
        let (before, state) = (clock::now(), permit.state());
        if reading == 0 || state.is_lost() {
            shared.observe(hold, before, state, ObservationKind::Check);
        }
        if state.is_lost() {
            return;
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
