//! Limits on clients, leases and open files.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Limits of a node. A client or lease beyond them is refused; its process still renews its leases itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The maximum number of clients. 10,000 by default.
    pub clients: usize,
    /// The maximum number of leases of one client. 100,000 by default.
    pub leases_per_client: usize,
    /// The maximum number of leases of all clients. 500,000 by default. Each takes about 250 bytes and its name.
    pub leases: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 10_000,
            leases_per_client: 100_000,
            leases: 500_000,
        }
    }
}

impl Limits {
    /// The maximum number of connections without a client.
    const WITHOUT_CLIENT: usize = 128;

    /// The number of files that are reserved for the stores, for HTTP and for the node itself.
    pub(crate) const FILES_RESERVED: u64 = 128;

    /// The maximum number of connections.
    pub(crate) fn connections(&self) -> usize {
        self.clients.saturating_add(Self::WITHOUT_CLIENT)
    }
}

/// A number of leases, and its maximum.
#[derive(Debug)]
pub(crate) struct LeaseCount {
    count: AtomicUsize,
    max: usize,
}

impl LeaseCount {
    pub(crate) const fn new(max: usize) -> Self {
        Self {
            count: AtomicUsize::new(0),
            max,
        }
    }

    /// Whether there is room for one more lease of a client that has `now` leases, of which `before` are counted
    /// here. Two concurrent callers may both get the last one.
    pub(crate) fn has_room(&self, before: usize, now: usize) -> bool {
        self.count().saturating_sub(before).saturating_add(now) < self.max
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Changes the count by the difference of two counts.
    pub(crate) fn change(&self, before: usize, after: usize) {
        if after >= before {
            self.count.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.count.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}
