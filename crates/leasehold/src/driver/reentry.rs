//! The leases that owners hold, so that they can enter them again.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use leasehold_core::OwnerId;
use tokio::sync::Mutex as AsyncMutex;

use super::active_lease::ActiveLease;
use super::primitives::{Mutex, lock};
use crate::store::Key;

/// The reentry slots of all owners. A slot exists as long as a task of its owner acquires or holds the lock.
#[derive(Default)]
pub(crate) struct ReentrySlots(Arc<Mutex<Slots>>);

type Slots = HashMap<(Key, OwnerId), Weak<ReentrySlot>>;

/// The lease of one owner on one lock: one task at a time acquires it, the others enter it.
pub(crate) struct ReentrySlot {
    /// The lease, and how often it had been handed off when the owner got it.
    pub(crate) lease: AsyncMutex<Option<(Arc<ActiveLease>, u32)>>,
    id: (Key, OwnerId),
    slots: Arc<Mutex<Slots>>,
}

impl ReentrySlots {
    pub(crate) fn slot(&self, key: &Key, owner: OwnerId) -> Arc<ReentrySlot> {
        let id = (key.clone(), owner);
        let mut slots = lock(&self.0);
        if let Some(slot) = slots.get(&id).and_then(Weak::upgrade) {
            return slot;
        }
        let slot = Arc::new(ReentrySlot {
            lease: AsyncMutex::new(None),
            id: id.clone(),
            slots: Arc::clone(&self.0),
        });
        slots.insert(id, Arc::downgrade(&slot));
        slot
    }
}

impl Drop for ReentrySlot {
    fn drop(&mut self) {
        let mut slots = lock(&self.slots);
        // Another slot may have been made for the same id since the last reference to this one was dropped.
        if slots
            .get(&self.id)
            .is_some_and(|slot| slot.strong_count() == 0)
        {
            slots.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::store::fixture;

    #[test]
    fn slots_leave_nothing_behind() {
        #[cfg(not(feature = "__shuttle"))]
        check_slots();
        // The mutexes of the model checker work only inside one of its models.
        #[cfg(feature = "__shuttle")]
        shuttle::check_random(check_slots, 1);
    }

    /// A slot exists exactly as long as there is a reference to it.
    fn check_slots() {
        let slots = ReentrySlots::default();
        for number in 1..1_000 {
            let key = fixture::key(&format!("n{}", number % 10));
            let owner = OwnerId(NonZeroU64::new(number).unwrap());
            let first = slots.slot(&key, owner);
            let second = slots.slot(&key, owner);
            assert!(Arc::ptr_eq(&first, &second));
            drop(first);
            assert!(Arc::ptr_eq(&second, &slots.slot(&key, owner)));
            drop(second);
            assert!(lock(&slots.0).is_empty());
        }
    }
}
