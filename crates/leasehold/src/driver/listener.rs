//! What the store tells without being asked, and whom it concerns.

use leasehold_core::{Cause, Grant, Notice};

use super::contender::Busy;
use super::primitives::tell;
use super::release::Behind;
use super::{Driver, concerns};
use crate::Durability;
use crate::store::{Event, Key, Listener, Reach};

impl Listener for Driver {
    fn hear(&self, event: Event) {
        match event {
            Event::Told(key, Notice::Granted(grant)) => self.granted(key, grant),
            Event::Told(key, Notice::Next { lease, ttl }) => {
                if let Some(Busy::Asking(slot)) = self.lines.busy(&key)
                    && slot.id == lease
                {
                    slot.next(self.clock.now(), ttl);
                }
            }
            Event::Told(key, Notice::Revoked { lease }) => {
                if let Some(Busy::Holding(held)) = self.lines.busy(&key)
                    && let Some(held) = held.upgrade()
                    && held.id == lease
                {
                    held.lose(Cause::Revoked, self.clock.now());
                    self.renewer.revisit(&held);
                }
            }
            Event::Changed(key) => match self.lines.busy(&key) {
                Some(Busy::Holding(held)) => {
                    if let Some(held) = held.upgrade() {
                        self.renewer.check(&held);
                    }
                }
                Some(Busy::Asking(slot)) => slot.changed(),
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
    fn ask_again(&self, reach: &Reach) {
        let waiting = match reach {
            Reach::Record(key) => self.lines.busy(key).into_iter().collect(),
            _ => self.lines.all_busy(|key| concerns(&self.store, reach, key)),
        };
        for busy in waiting {
            if let Busy::Asking(slot) = busy {
                slot.ask_again();
            }
        }
    }

    fn granted(&self, key: Key, grant: Grant) {
        match self.lines.busy(&key) {
            Some(Busy::Asking(slot)) if slot.id == grant.lease => {
                return slot.granted(grant, self.clock.now());
            }
            Some(Busy::Holding(held)) => {
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
        tell(|| tracing::debug!(lock, %lease, "granted to nobody"));
        if let Some(driver) = self.me.upgrade() {
            // Of whatever durability it was: that is nobody's now.
            let none = Durability::None;
            driver.abandon(key, grant.lease, grant.ttl, none, None, Behind::Everything);
        }
    }
}
