//! Dispatches the events of the store to the acquisitions and leases that they concern.

use std::sync::Arc;

use leasehold_core::acquisition::AcquireNotice;
use leasehold_core::{AbandonedLease, Cause, Grant, Notice, ReleaseOrder};

use super::primitives::report;
use super::shares::Known;
use super::{Driver, HeadState, release};
use crate::Durability;
use crate::store::{Event, EventScope, Key};

pub(crate) fn dispatch(driver: &Arc<Driver>, event: Event) {
    let now = driver.context.clock.now();
    match event {
        Event::Notice(key, Notice::Granted(grant)) => granted(driver, key, grant),
        Event::Notice(key, Notice::Next { lease, ttl }) => {
            if let Some(acquisition) = driver.queues.acquiring(&key, lease) {
                acquisition.handle_notice(AcquireNotice::Next(ttl), now);
            }
        }
        Event::Notice(key, Notice::Revoked { lease }) => {
            let held = driver.mutex_lease(&key).filter(|held| held.id == lease);
            if let Some(held) = held.or_else(|| driver.shares.lease(lease)) {
                held.lose(Cause::Revoked, now);
                driver.renewer.revisit(&held);
            }
        }
        Event::Notice(key, Notice::Complete { lease, note }) => {
            if let Some(acquisition) = driver.queues.acquiring(&key, lease) {
                acquisition.handle_notice(AcquireNotice::Complete(lease, note), now);
            }
        }
        Event::Changed(key) => {
            for head in driver.queues.heads(&key) {
                match head {
                    HeadState::Holding(held) => {
                        if let Some(held) = held.upgrade() {
                            driver.renewer.check(&held);
                        }
                    }
                    HeadState::Acquiring(acquisition) => {
                        acquisition.handle_notice(AcquireNotice::Changed, now);
                    }
                }
            }
        }
        Event::Interrupted(scope) => {
            driver.interruptions.send_replace(());
            interrupt_acquisitions(driver, &scope);
            driver.renewer.interrupted(scope);
        }
        Event::Moved(scope) => {
            driver.interruptions.send_replace(());
            interrupt_acquisitions(driver, &scope);
        }
    }
}

/// Notices of these records may have been lost: every acquisition of them sends a request.
pub(crate) fn interrupt_acquisitions(driver: &Driver, scope: &EventScope) {
    let now = driver.context.clock.now();
    let heads: Vec<_> = match scope {
        EventScope::Record(key) => driver.queues.heads(key).collect(),
        _ => driver
            .queues
            .head_states(|key| driver.context.concerns(scope, key)),
    };
    for head in heads {
        if let HeadState::Acquiring(acquisition) = head {
            acquisition.handle_notice(AcquireNotice::Interrupted, now);
        }
    }
    driver.shares.interrupt();
}

fn granted(driver: &Arc<Driver>, key: Key, grant: Grant) {
    let now = driver.context.clock.now();
    if let Some(acquisition) = driver.queues.acquiring(&key, grant.lease) {
        return acquisition.handle_notice(AcquireNotice::Granted(grant), now);
    }
    let held = driver
        .mutex_lease(&key)
        .filter(|held| held.id == grant.lease);
    let known = match held {
        Some(held) if grant.is_after(held.first) => Known::Ended(held),
        Some(_) => Known::Held,
        None => driver.shares.granted(&grant),
    };
    match known {
        // The reply to a later request was read first.
        Known::Held => return,
        // The lease had ended in the store, and a delayed request has acquired the lock again for its id.
        Known::Ended(held) => held.lose(Cause::Deleted, now),
        // Its holder may still end its work, and relies on the rest of the ttl for that.
        Known::Nobody if driver.lost.has(&grant) => return,
        Known::Nobody => {}
    }
    let (lock, lease) = (key.name.as_str(), grant.lease);
    report(|| tracing::debug!(lock, %lease, "a grant that nobody waits for is released"));
    let abandoned = AbandonedLease {
        lease,
        ttl: grant.ttl,
        late: None,
        order: ReleaseOrder::Behind,
    };
    // The durability of its request is no longer of interest.
    release::abandon(driver, key, abandoned, Durability::None);
}
