//! The queue of a lock: the leases that wait for it, in the order of their requests.

use std::collections::VecDeque;
use std::time::Duration;

use crate::id::LeaseId;
use crate::time::{StoreTime, Ttl};
use crate::token::TokenCount;

/// How long the store keeps a lease that it granted to a waiter until the waiter renews it: the time that a
/// waiter which cannot accept its grant costs the others at most.
pub const ACCEPTANCE_MS: u64 = 3_000;

/// A waiter retries at least once in its ttl. Its queue outlives that by this much.
const SPARE: Duration = Duration::from_secs(1);

/// A lease that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Waiter {
    /// The lease that waits for the lock.
    pub lease: LeaseId,
    /// The ttl of its request. Its grant is for [`acceptance`] of it.
    pub ttl: Ttl,
    /// How many tokens to reserve for it.
    pub tokens: TokenCount,
}

/// The waiters of a lock, the head first. Dropped when there was no request for long enough.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Queue {
    waiting: VecDeque<Waiter>,
    until: StoreTime,
}

/// The ttl of a grant to a waiter whose request was for `ttl`: that, and at most [`ACCEPTANCE_MS`].
#[must_use]
pub fn acceptance(ttl: Ttl) -> Ttl {
    Ttl::from_millis(ttl.as_millis().min(ACCEPTANCE_MS)).unwrap_or(ttl)
}

/// How long a queue is kept after a request for `ttl`: two of them and a second.
#[must_use]
pub fn retention(ttl: Ttl) -> Duration {
    ttl.as_duration() * 2 + SPARE
}

impl Queue {
    /// A queue as a store kept it: its waiters and when it is dropped.
    #[must_use]
    pub fn restored(waiting: impl IntoIterator<Item = Waiter>, until: StoreTime) -> Self {
        let waiting: VecDeque<_> = waiting.into_iter().collect();
        if waiting.is_empty() {
            return Self::default();
        }
        Self { waiting, until }
    }

    /// Its waiters, the head first.
    pub fn waiters(&self) -> impl ExactSizeIterator<Item = &Waiter> {
        self.waiting.iter()
    }

    /// When it is dropped unless there is another request.
    #[must_use]
    pub const fn until(&self) -> StoreTime {
        self.until
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The first waiter.
    #[must_use]
    pub fn head(&self) -> Option<&Waiter> {
        self.waiting.front()
    }

    /// Adds a waiter at the end, unless it waits already. Returns the number of waiters before it.
    pub(crate) fn join(&mut self, waiter: Waiter, now: StoreTime) -> u32 {
        self.until = self.until.max(now.after_span(retention(waiter.ttl)));
        let position = self.position(waiter.lease).unwrap_or_else(|| {
            self.waiting.push_back(waiter);
            self.waiting.len() - 1
        });
        u32::try_from(position).unwrap_or(u32::MAX)
    }

    /// Removes the head.
    pub(crate) fn pop(&mut self) {
        self.waiting.pop_front();
        self.settle();
    }

    /// Removes a lease, at whatever position.
    pub(crate) fn leave(&mut self, lease: LeaseId) {
        if let Some(position) = self.position(lease) {
            self.waiting.remove(position);
            self.settle();
        }
    }

    /// Drops all waiters if there was no request for too long.
    pub(crate) fn expire(&mut self, now: StoreTime) {
        if now >= self.until {
            *self = Self::default();
        }
    }

    fn position(&self, lease: LeaseId) -> Option<usize> {
        self.waiting.iter().position(|waiter| waiter.lease == lease)
    }

    /// An empty queue is not kept.
    fn settle(&mut self) {
        if self.waiting.is_empty() {
            *self = Self::default();
        }
    }
}
