//! Built without a watchdog: nobody is told anything.

use std::sync::Arc;

use leasehold_core::Instant;

use super::held::Held;

/// The nodes that look after the leases of a client: none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch;

#[expect(clippy::unused_self, reason = "the same as with a watchdog")]
impl Watch {
    pub(super) fn mark(&self, _: &Arc<Held>, _: Instant) {}

    pub(super) fn unmark(&self, _: &Held) {}

    pub(crate) fn close(&self) {}
}
