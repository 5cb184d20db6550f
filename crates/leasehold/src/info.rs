//! Descriptions of locks, for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::{LeaseId, Token};

use crate::store::{ClientInfo, View, WaiterInfo};

/// A lock that is held or in its minimum hold, as the store knew it at the time of the call. Made by
/// [`Mutex::inspect`](crate::Mutex::inspect) and [`Client::locks`](crate::Client::locks), which have examples.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The name of the lock.
    pub name: String,
    /// The lease that holds it. During a minimum hold its number is 0.
    pub lease: LeaseId,
    /// Whether the lock was released and is in its minimum hold: no client holds it, and it stays taken for
    /// [`time_left`](Self::time_left). See [`LeaseOptions::min_hold`](crate::LeaseOptions::min_hold).
    pub min_hold: bool,
    /// The number of holds that its owner has on it.
    pub count: u32,
    /// The last fencing token of this lock. `None` if the store has lost the counter.
    pub token: Option<Token>,
    /// The time until it expires, unless it is renewed or released.
    pub time_left: Duration,
    /// When it was acquired, by the clock of the store: derived from the token, which starts at that time.
    pub since: Option<SystemTime>,
    /// The client that holds it, or held it before the minimum hold. `None` if its client info is not written yet, or has
    /// expired.
    pub client: Option<ClientInfo>,
    /// The leases that wait for it, in the order in which they will be served: the first 1,000 in the queue of the store.
    /// A client has one lease there, however many of its tasks wait: see [`Client::id`](crate::Client::id).
    ///
    /// A dead client is listed until its turn comes. The list is empty over many masters, which have no queue, and if the
    /// user of the store may not read the queue.
    pub waiters: Vec<WaiterInfo>,
}

impl LockInfo {
    /// The little that is known of a lease whose record is already gone.
    pub(crate) fn of(name: &str, lease: LeaseId) -> Self {
        Self {
            name: name.to_owned(),
            lease,
            min_hold: false,
            count: 1,
            token: None,
            time_left: Duration::ZERO,
            since: None,
            client: None,
            waiters: Vec::new(),
        }
    }

    /// A lock as a store has read it. `None`: it is free.
    pub(crate) fn held(view: View) -> Option<Self> {
        let holder = view.holder?;
        Some(Self {
            name: view.key.name.as_str().to_owned(),
            lease: holder.lease,
            min_hold: holder.is_reserved,
            count: holder.count,
            token: view.token,
            time_left: holder.time_left,
            since: view
                .token
                .and_then(|token| UNIX_EPOCH.checked_add(Duration::from_micros(token.get()))),
            client: holder.client,
            waiters: view.waiters,
        })
    }
}
