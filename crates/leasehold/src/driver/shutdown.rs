//! The shutdown of a client: every lease is released, and all waiting ends.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Cause, Instant, LateRelease};

use super::active_lease::ActiveLease;
use super::batcher::BATCH_MAX;
use super::{Driver, events, release};
use crate::store::EventScope;

/// Shuts a client down as [`shut_down`], and waits until the nodes of its watchdog have forgotten it, for no longer
/// than `timeout`. `None`: the store has not confirmed all releases.
pub(crate) async fn shut_down_within(driver: &Arc<Driver>, timeout: Duration) -> Option<usize> {
    #[cfg(feature = "watchdog")]
    let begun = driver.context.clock.now();
    let released = driver.within(timeout, shut_down(driver)).await?;
    #[cfg(feature = "watchdog")]
    {
        let rest = timeout.saturating_sub(driver.context.clock.now().since(begun));
        driver.within(rest, driver.watchdog.disconnect()).await;
    }
    Some(released)
}

/// Releases every lease, ends all waiting, and waits until the store has confirmed the releases. Returns how
/// many leases were held.
pub(crate) async fn shut_down(driver: &Arc<Driver>) -> usize {
    if !driver.context.process.is_current() {
        return 0;
    }
    driver.close();
    // Before its next request, an acquisition finds that the client is closed.
    events::interrupt_acquisitions(driver, &EventScope::Store);
    let now = driver.context.clock.now();
    let mut leases = driver.renewer.leases();
    leases.retain(|lease| !lease.lock().lease.state(now).is_lost());
    for batch in leases.chunks(BATCH_MAX) {
        release_batch(driver, batch, now);
    }
    release_requested(driver);
    driver.releases.idle().await;
    for lease in &leases {
        lease.no_renewal().await;
    }
    leases.len()
}

/// Releases what acquisitions under way have requested. Their tasks do so themselves, but may be polled later.
fn release_requested(driver: &Arc<Driver>) {
    for (key, acquisition) in driver.queues.all_acquiring() {
        let requested = acquisition.lock().machine.unreleased();
        if let Some(requested) = requested {
            let durability = acquisition.options.durability;
            release::abandon(driver, key, requested, durability);
        }
    }
}

/// Releases leases, with one task for all replies: there may be a million leases.
fn release_batch(driver: &Arc<Driver>, leases: &[Arc<ActiveLease>], now: Instant) {
    let post = |lease: &Arc<ActiveLease>| {
        lease.lose(Cause::Released, now);
        driver.renewer.remove(lease);
        let (release, expires) = {
            let inner = lease.lock();
            (lease.release(&inner, 0, None, now), inner.expires(now))
        };
        let reply = driver.batcher.post(release.request(now));
        let late = lease.late_release();
        let late = late.map(|at| LateRelease { at, single: false });
        let expires = release::forgotten(driver, expires);
        (driver.releases.begin(release, expires, late), reply)
    };
    let posted: Vec<_> = leases.iter().map(post).collect();
    release::await_replies(driver, posted);
}
