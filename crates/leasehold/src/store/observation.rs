//! What a store knows of one name at a moment, and when that changes.

use std::time::Duration;

use leasehold_core::{Annotation, LatchStatus, LeaseId, Record, StoreTime};
use tokio::sync::oneshot;

/// Completes, or is dropped by the store, when what was read has changed or may have changed. It may be spurious.
///
/// What ends by time is not a change: a lease by its ttl, for which its reader has a timer, a queue or an annotation.
pub type Changed = oneshot::Receiver<()>;

/// The state of a name, as [`Store::observe`](super::Store::observe) has read it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Observation {
    /// The store's time of the reading.
    pub now: StoreTime,
    /// The lease that holds the lock, and the time until it expires unless it is renewed. `None`: the lock is free.
    pub holder: Option<(LeaseId, Duration)>,
    /// The lease that was revoked last, unless that is longer ago than
    /// [`REVOCATION_RETENTION`](leasehold_core::lock_event::REVOCATION_RETENTION).
    pub revoked: Option<LeaseId>,
    /// How many leases wait in the queue of the store.
    pub waiters: usize,
    /// The annotation.
    pub annotation: Option<Annotation>,
    /// The next change. `None`: the store cannot push it, so the reader polls.
    pub changed: Option<Changed>,
}

/// The state of a latch, as [`Store::observe_latch`](super::Store::observe_latch) has read it.
#[derive(Debug)]
#[non_exhaustive]
pub struct LatchObservation {
    /// Its status. `None`: it has no record.
    pub latch: Option<LatchStatus>,
    /// The next change. `None`: the store cannot push it, so the reader polls.
    pub changed: Option<Changed>,
}

/// The part of an observation that operations on a record change: its holder and the number of its waiters.
pub(super) fn visible(record: &Record, now: StoreTime) -> (Option<LeaseId>, usize) {
    let holder = record.holder(now).map(|hold| hold.lease);
    let waiters = match now < record.queue.until() {
        true => record.queue.waiters().len(),
        false => 0,
    };
    (holder, waiters)
}
