//! Locks and clients, as shown to people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::{LeaseId, Token};

use super::key::Key;

/// A lock that is held, or in its minimum hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The lock.
    pub key: Key,
    /// The lease that holds it. A minimum hold: see [`LeaseId::is_min_hold`].
    pub lease: LeaseId,
    /// The number of holds on it.
    pub count: u32,
    /// The time until it expires, unless it is renewed or released.
    pub time_left: Duration,
    /// The last token of this name. `None` if the counter was lost.
    pub token: Option<Token>,
    /// The client that holds it. `None` if its client info is not written yet, or has expired.
    pub client: Option<ClientInfo>,
    /// The leases in the queue of the store, the head first, of which at most the first
    /// [`WAITERS_MAX`](Self::WAITERS_MAX) are read. Empty if the user may not read the queue.
    pub waiters: Vec<WaiterInfo>,
}

impl Entry {
    /// How many waiters of a lock are read at most.
    pub const WAITERS_MAX: usize = 1_000;
}

/// How much of a lock is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// The lease that holds it, and its token.
    Lease,
    /// The client info of the holder, too.
    Holder,
    /// The waiters and their client info, too.
    Waiters,
}

/// A lease that waits for a lock in the queue of the store. The tasks of a client share one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaiterInfo {
    /// The lease that waits.
    pub lease: LeaseId,
    /// The client that waits. `None` if its client info is not written yet, or has expired.
    pub client: Option<ClientInfo>,
}

/// The client info of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientInfo {
    /// The name of its machine.
    pub host: String,
    /// Its process id there.
    pub pid: u32,
    /// The program it runs.
    pub program: String,
    /// A text of the user's choice; may be empty.
    pub label: String,
    /// When it connected, by its own clock, to the millisecond.
    pub since: SystemTime,
}

#[cfg(any(feature = "redis", feature = "sqlite"))]
impl ClientInfo {
    /// `since` in milliseconds since the Unix epoch, as stores keep it.
    pub(crate) fn since_millis(&self) -> u64 {
        let since = self.since.duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    /// Sets `since` from milliseconds since the Unix epoch.
    pub(crate) fn set_since_millis(&mut self, millis: u64) {
        let since = UNIX_EPOCH.checked_add(Duration::from_millis(millis));
        self.since = since.unwrap_or(UNIX_EPOCH);
    }
}

impl Default for ClientInfo {
    fn default() -> Self {
        Self {
            host: String::new(),
            pid: 0,
            program: String::new(),
            label: String::new(),
            since: UNIX_EPOCH,
        }
    }
}
