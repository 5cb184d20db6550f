//! Replaces the watchdog client in a build without the `watchdog` feature.

use std::sync::Arc;

use leasehold_core::Instant;

use super::active_lease::ActiveLease;

/// The watchdog client of a build without one.
#[derive(Clone, Debug)]
pub(crate) struct WatchdogClient;

#[expect(clippy::unused_self, reason = "the same as with a watchdog")]
impl WatchdogClient {
    pub(super) fn register(&self, _: &Arc<ActiveLease>, _: Instant) {}

    pub(super) fn unregister(&self, _: &ActiveLease) {}

    pub(crate) fn close(&self) {}
}
