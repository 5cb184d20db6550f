//! What the store tells without being asked, and whom it concerns.

use leasehold_core::{Cause, Grant, Notice};

use super::contender::HeadState;
use super::release::ReleaseOrder;
use super::sync::report;
use super::{Driver, concerns};
use crate::Durability;
use crate::store::{Event, EventScope, Key, Listener};

impl Listener for Driver {
    fn notify(&self, event: Event) {
        match event {
            Event::Notice(key, Notice::Granted(grant)) => self.granted(key, grant),
            Event::Notice(key, Notice::Next { lease, ttl }) => {
                if let Some(HeadState::Asking(wakeup)) = self.queues.busy(&key)
                    && wakeup.id == lease
                {
                    wakeup.next(self.clock.now(), ttl);
                }
            }
            Event::Notice(key, Notice::Revoked { lease }) => {
                if let Some(HeadState::Holding(held)) = self.queues.busy(&key)
                    && let Some(held) = held.upgrade()
                    && held.id == lease
                {
                    held.lose(Cause::Revoked, self.clock.now());
                    self.renewer.revisit(&held);
                }
            }
            Event::Changed(key) => match self.queues.busy(&key) {
                Some(HeadState::Holding(held)) => {
                    if let Some(held) = held.upgrade() {
                        self.renewer.check(&held);
                    }
                }
                Some(HeadState::Asking(wakeup)) => wakeup.changed(),
                None => {}
            },
            Event::Interrupted(reach) => {
                self.ask_again(&reach);
                self.renewer.interrupted(reach);
            }
            Event::Moved(reach) => self.ask_again(&reach),
        }
    }
}

impl Driver {
    /// Has everybody ask again who waits for one of these records.
    fn ask_again(&self, reach: &EventScope) {
        let waiting = match reach {
            EventScope::Record(key) => self.queues.busy(key).into_iter().collect(),
            _ => self
                .queues
                .all_busy(|key| concerns(&self.store, reach, key)),
        };
        for busy in waiting {
            if let HeadState::Asking(wakeup) = busy {
                wakeup.ask_again();
            }
        }
    }

    fn granted(&self, key: Key, grant: Grant) {
        match self.queues.busy(&key) {
            Some(HeadState::Asking(wakeup)) if wakeup.id == grant.lease => {
                return wakeup.granted(grant, self.clock.now());
            }
            Some(HeadState::Holding(held)) => {
                let held = held.upgrade().filter(|held| held.id == grant.lease);
                // A later question was answered first: it is the same grant.
                if held.as_ref().is_some_and(|held| held.first == grant.first) {
                    return;
                }
                // It had ended in the store, and a question that came late has revived its id.
                if let Some(held) = held {
                    held.lose(Cause::Deleted, self.clock.now());
                }
            }
            _ => {}
        }
        let (lock, lease) = (key.name.as_str(), grant.lease);
        report(|| tracing::debug!(lock, %lease, "granted to nobody"));
        if let Some(driver) = self.me.upgrade() {
            // Of whatever durability it was: that is nobody's now.
            let none = Durability::None;
            driver.abandon(
                key,
                grant.lease,
                grant.ttl,
                none,
                None,
                ReleaseOrder::Everything,
            );
        }
    }
}
