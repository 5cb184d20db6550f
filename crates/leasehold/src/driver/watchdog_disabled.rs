//! Built without a watchdog: nobody is told anything.

use std::sync::Arc;

use leasehold_core::Instant;

use super::active_lease::ActiveLease;

/// The nodes that look after the leases of a client: none.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchdogClient;

#[expect(clippy::unused_self, reason = "the same as with a watchdog")]
impl WatchdogClient {
    pub(super) fn mark(&self, _: &Arc<ActiveLease>, _: Instant) {}

    pub(super) fn unmark(&self, _: &ActiveLease) {}

    pub(crate) fn close(&self) {}
}
