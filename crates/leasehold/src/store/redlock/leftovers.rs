//! What failed acquisitions have left at the masters.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use leasehold_core::LeaseId;
use leasehold_core::quorum::Masters;
use tokio::time::Instant;

use crate::store::lock::lock;

/// The number of entries from which old ones are removed.
const ENTRIES_MIN: usize = 1_024;

/// The leases of failed acquisitions, until their release is applied. A release is sent only to the masters
/// that may have granted the lease.
#[derive(Debug)]
pub(super) struct Leftovers {
    /// About how long a lease can outlive its acquisition.
    longest: Duration,
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    entries: HashMap<LeaseId, Entry>,
    /// The number of entries at which to remove old ones.
    full: usize,
}

#[derive(Debug)]
struct Entry {
    at: Replies,
    since: Instant,
}

/// The replies of the masters to the acquisition of a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Replies {
    /// The masters that have granted it.
    pub(super) granted: Masters,
    /// The masters that certainly do not have it: they refused it, or have released it since.
    pub(super) clear: Masters,
}

impl Leftovers {
    pub(super) fn new(longest: Duration) -> Self {
        Self {
            longest,
            table: Mutex::new(Table {
                entries: HashMap::new(),
                full: ENTRIES_MIN,
            }),
        }
    }

    /// Records a failed acquisition.
    pub(super) fn add(&self, lease: LeaseId, at: Replies) {
        let since = Instant::now();
        let mut table = lock(&self.table);
        if table.entries.len() >= table.full {
            // The client no longer repeats their releases.
            table
                .entries
                .retain(|_, entry| since < entry.since + self.longest * 2);
            table.full = (table.entries.len() * 2).max(ENTRIES_MIN);
        }
        table.entries.insert(lease, Entry { at, since });
    }

    /// The replies to a failed acquisition.
    pub(super) fn replies(&self, lease: LeaseId) -> Option<Replies> {
        lock(&self.table).entries.get(&lease).map(|entry| entry.at)
    }

    /// Records that a master has released a lease.
    pub(super) fn released_at(&self, lease: LeaseId, master: usize) {
        if let Some(entry) = lock(&self.table).entries.get_mut(&lease) {
            entry.at.clear.insert(master);
        }
    }

    /// Forgets a lease that a majority has released.
    pub(super) fn remove(&self, lease: LeaseId) {
        lock(&self.table).entries.remove(&lease);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::api::fixture::lease;

    fn masters(places: &[usize]) -> Masters {
        let mut masters = Masters::default();
        places.iter().for_each(|place| masters.insert(*place));
        masters
    }

    fn leftovers() -> Leftovers {
        Leftovers::new(Duration::from_secs(60))
    }

    #[test]
    fn a_release_goes_to_each_master_until_it_was_applied_there() {
        let leftovers = leftovers();
        let [granted, clear] = [&[0, 1][..], &[2]].map(masters);
        leftovers.add(lease(1), Replies { granted, clear });
        leftovers.released_at(lease(1), 0);
        let clear = masters(&[0, 2]);
        let left = Some(Replies { granted, clear });
        assert_eq!(leftovers.replies(lease(1)), left);
        leftovers.remove(lease(1));
        assert_eq!(leftovers.replies(lease(1)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_nobody_releases_is_forgotten_when_it_has_ended() {
        let leftovers = leftovers();
        for number in 0..5_000 {
            leftovers.add(lease(number), Replies::default());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let left = lock(&leftovers.table).entries.len();
        assert!(left <= ENTRIES_MIN, "{left}");
    }
}
