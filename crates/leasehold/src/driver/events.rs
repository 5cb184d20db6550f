//! Dispatches the events of the store to the acquisitions and leases that they concern.

use std::sync::Arc;

use leasehold_core::acquisition::AcquireNotice;
use leasehold_core::{AbandonedLease, Cause, Grant, Notice, ReleaseOrder};

use super::primitives::report;
use super::{Driver, HeadState, release};
use crate::Durability;
use crate::store::{Event, EventScope, Key};

pub(crate) fn dispatch(driver: &Arc<Driver>, event: Event) {
    let now = driver.context.clock.now();
    match event {
        Event::Notice(key, Notice::Granted(grant)) => granted(driver, key, grant),
        Event::Notice(key, Notice::Next { lease, ttl }) => {
            if let Some(HeadState::Acquiring(acquisition)) = driver.queues.head_state(&key)
                && acquisition.lock().machine.lease() == Some(lease)
            {
                acquisition.handle_notice(AcquireNotice::Next(ttl), now);
            }
        }
        Event::Notice(key, Notice::Revoked { lease }) => {
            if let Some(HeadState::Holding(held)) = driver.queues.head_state(&key)
                && let Some(held) = held.upgrade()
                && held.id == lease
            {
                held.lose(Cause::Revoked, now);
                driver.renewer.revisit(&held);
            }
        }
        Event::Notice(key, Notice::Complete { lease, note }) => {
            if let Some(HeadState::Acquiring(acquisition)) = driver.queues.head_state(&key) {
                acquisition.handle_notice(AcquireNotice::Complete(lease, note), now);
            }
        }
        Event::Changed(key) => match driver.queues.head_state(&key) {
            Some(HeadState::Holding(held)) => {
                if let Some(held) = held.upgrade() {
                    driver.renewer.check(&held);
                }
            }
            Some(HeadState::Acquiring(acquisition)) => {
                acquisition.handle_notice(AcquireNotice::Changed, now);
            }
            None => {}
        },
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
    let heads = match scope {
        EventScope::Record(key) => driver.queues.head_state(key).into_iter().collect(),
        _ => driver
            .queues
            .head_states(|key| driver.context.concerns(scope, key)),
    };
    for head in heads {
        if let HeadState::Acquiring(acquisition) = head {
            acquisition.handle_notice(AcquireNotice::Interrupted, now);
        }
    }
}

fn granted(driver: &Arc<Driver>, key: Key, grant: Grant) {
    let now = driver.context.clock.now();
    match driver.queues.head_state(&key) {
        Some(HeadState::Acquiring(acquisition))
            if acquisition.lock().machine.lease() == Some(grant.lease) =>
        {
            return acquisition.handle_notice(AcquireNotice::Granted(grant), now);
        }
        Some(HeadState::Holding(held)) => {
            let held = held.upgrade().filter(|held| held.id == grant.lease);
            // The reply to a later request was read first: it is the same grant.
            if held.as_ref().is_some_and(|held| held.first == grant.first) {
                return;
            }
            // The lease had ended in the store, and a delayed request has acquired the lock again for its id.
            if let Some(held) = held {
                held.lose(Cause::Deleted, now);
            }
        }
        _ => {}
    }
    let (lock, lease) = (key.name.as_str(), grant.lease);
    report(|| tracing::debug!(lock, %lease, "a grant that nobody waits for is released"));
    let abandoned = AbandonedLease {
        lease,
        ttl: grant.ttl,
        late: None,
        order: ReleaseOrder::Behind,
    };
    // The durability of its request is of no interest any more.
    release::abandon(driver, key, abandoned, Durability::None);
}
