//! Descriptions of locks, for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::record::LeaseKind;
use leasehold_core::{Access, LeaseId, Token};

use crate::store::{ClientInfo, HolderInfo, View, WaiterInfo};

/// A lock that is held or in its minimum hold, as the store knew it at the time of the call. Made by
/// [`Mutex::inspect`](crate::Mutex::inspect) and [`Client::locks`](crate::Client::locks), which have examples.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The name of the lock.
    pub name: String,
    /// The kind of the lock.
    pub kind: LeaseKind,
    /// How many permits it has, if it is a semaphore.
    pub permits: Option<u64>,
    /// The lease that holds it, or the first of those that do: see [`others`](Self::others).
    pub lease: LeaseId,
    /// Whether the lock was released and is in its minimum hold: no client holds it, and it stays taken for
    /// [`time_left`](Self::time_left). See [`LeaseOptions::min_hold`](crate::LeaseOptions::min_hold).
    pub min_hold: bool,
    /// The number of holds that its owner has on it.
    pub count: u32,
    /// How many permits the lease has, if the lock is a semaphore.
    pub weight: Option<u64>,
    /// Its number among the holders of a [numbered](crate::Semaphore::numbered) semaphore.
    pub number: Option<u32>,
    /// Whether the holder reads or writes, if the lock is a read-write lock.
    pub access: Option<Access>,
    /// The last fencing token of this lock. `None` if the store has lost the counter.
    pub token: Option<Token>,
    /// The time until it expires, unless it is renewed or released.
    pub time_left: Duration,
    /// When it was acquired, by the clock of the store: derived from the token, which starts at that time.
    pub since: Option<SystemTime>,
    /// The client that holds it, or held it before the minimum hold. `None` if its client info is not written yet, or has
    /// expired.
    pub client: Option<ClientInfo>,
    /// The other leases that hold it at the same time, if it is a semaphore or a read-write lock.
    pub others: Vec<HolderInfo>,
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
            kind: LeaseKind::Mutex,
            permits: None,
            lease,
            min_hold: false,
            count: 1,
            weight: None,
            number: None,
            access: None,
            token: None,
            time_left: Duration::ZERO,
            since: None,
            client: None,
            others: Vec::new(),
            waiters: Vec::new(),
        }
    }

    /// A lock as a store has read it. `None`: it is free.
    pub(crate) fn held(view: View) -> Option<Self> {
        let holder = view.holder?;
        let kind = view.usage.map_or(LeaseKind::Mutex, |usage| usage.kind);
        let permits = view.usage.map(|usage| usage.permits);
        let is_semaphore = kind == LeaseKind::Semaphore;
        Some(Self {
            name: view.key.name.as_str().to_owned(),
            kind,
            permits: permits.filter(|_| is_semaphore),
            lease: holder.lease,
            min_hold: holder.is_reserved,
            count: holder.count,
            weight: is_semaphore.then_some(holder.weight),
            number: holder.number,
            access: holder.access().filter(|_| kind == LeaseKind::RwLock),
            token: view.token,
            time_left: holder.time_left,
            since: view
                .token
                .and_then(|token| UNIX_EPOCH.checked_add(Duration::from_micros(token.get()))),
            client: holder.client,
            others: view.others,
            waiters: view.waiters,
        })
    }
}
