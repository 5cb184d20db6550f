//! Which lease an owner holds under which key, so that it can enter again.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use leasehold_core::OwnerId;
use tokio::sync::Mutex as AsyncMutex;

use super::active_lease::ActiveLease;
use super::sync::{Mutex, lock};
use crate::store::Key;

/// The places of all reentries. A place exists as long as someone waits at it or holds through it.
#[derive(Debug, Default)]
pub(crate) struct Reentries(Arc<Mutex<ReentrySlots>>);

type ReentrySlots = HashMap<(Key, OwnerId), Weak<ReentrySlot>>;

/// Where the tasks of one owner meet for one key: one at a time acquires, the others enter.
#[derive(Debug)]
pub(crate) struct ReentrySlot {
    /// The lease, and how often it had been handed off when it came to the owner.
    pub(crate) lease: AsyncMutex<Option<(Arc<ActiveLease>, u32)>>,
    id: (Key, OwnerId),
    places: Arc<Mutex<ReentrySlots>>,
}

impl Reentries {
    pub(crate) fn place(&self, key: &Key, owner: OwnerId) -> Arc<ReentrySlot> {
        let id = (key.clone(), owner);
        let mut places = lock(&self.0);
        if let Some(place) = places.get(&id).and_then(Weak::upgrade) {
            return place;
        }
        let place = Arc::new(ReentrySlot {
            lease: AsyncMutex::new(None),
            id: id.clone(),
            places: Arc::clone(&self.0),
        });
        places.insert(id, Arc::downgrade(&place));
        place
    }
}

impl Drop for ReentrySlot {
    fn drop(&mut self) {
        let mut places = lock(&self.places);
        // Another place may have been made for the same id since the last reference to this went.
        if places
            .get(&self.id)
            .is_some_and(|place| place.strong_count() == 0)
        {
            places.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use leasehold_core::{Name, ScopeName};

    use super::*;
    use crate::store::Keyspace;

    /// A place is there exactly as long as somebody is at it.
    #[test]
    fn places_leave_nothing_behind() {
        let reentries = Reentries::default();
        let scope = ScopeName::parse("x").unwrap();
        let space = Keyspace::new(scope.clone(), scope);
        for number in 1..1_000 {
            let key = space.key(Name::parse(&format!("n{}", number % 10)).unwrap());
            let owner = OwnerId(NonZeroU64::new(number).unwrap());
            let first = reentries.place(&key, owner);
            let second = reentries.place(&key, owner);
            assert!(Arc::ptr_eq(&first, &second));
            drop(first);
            assert!(Arc::ptr_eq(&second, &reentries.place(&key, owner)));
            drop(second);
            assert!(lock(&reentries.0).is_empty());
        }
    }
}
