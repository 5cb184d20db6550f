//! The queue, as the replies state it.

use leasehold_core::{LeaseId, Slot, Ttl};

/// How much longer than two ttls the queue is kept after a request, in microseconds.
const EXTRA: u64 = 1_000_000;

/// A lease that was refused and waits.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) lease: LeaseId,
    pub(super) ttl: Ttl,
    pub(super) tokens: u64,
    /// The slot of the run that it waits for.
    pub(super) run: Option<Slot>,
}

/// The waiters, in the order of their first requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    waiters: Vec<Waiter>,
    until: u64,
}

impl Queue {
    /// Adds a waiter that was refused at `now`, unless it waits already. Returns how many are before it.
    pub(super) fn join(&mut self, waiter: Waiter, now: u64) -> u64 {
        if self.waiters.is_empty() {
            self.until = 0;
        }
        let kept = now.saturating_add(waiter.ttl.as_millis() * 2_000 + EXTRA);
        self.until = self.until.max(kept);
        let before = self.count_before(waiter.lease);
        if before == self.waiters.len() {
            self.waiters.push(waiter);
        }
        before as u64
    }

    /// Removes all waiters if none has sent a request for too long.
    pub(super) fn expire(&mut self, now: u64) {
        if now >= self.until {
            self.waiters.clear();
        }
    }

    pub(super) fn leave(&mut self, lease: LeaseId) {
        self.waiters.retain(|waiter| waiter.lease != lease);
    }

    /// Removes a waiter that was granted the lock, and those before it, which are returned.
    pub(super) fn serve(&mut self, lease: LeaseId) -> Vec<LeaseId> {
        let before = self.count_before(lease);
        let before = self.waiters.drain(..before);
        let before = before.map(|waiter| waiter.lease).collect();
        self.leave(lease);
        before
    }

    /// Removes the dead waiters at the head. Returns the first living one.
    pub(super) fn pass_over(&mut self, is_dead: impl Fn(LeaseId) -> bool) -> Option<LeaseId> {
        let mut waiters = self.waiters.iter();
        let living = waiters.position(|waiter| !is_dead(waiter.lease));
        self.waiters.drain(..living.unwrap_or(self.waiters.len()));
        self.waiters.first().map(|waiter| waiter.lease)
    }

    pub(super) fn find(&self, lease: LeaseId) -> Option<Waiter> {
        let mut waiters = self.waiters.iter();
        waiters.find(|waiter| waiter.lease == lease).cloned()
    }

    pub(super) fn waiters(&self) -> &[Waiter] {
        &self.waiters
    }

    /// How many are before a lease: all, if it does not wait.
    fn count_before(&self, lease: LeaseId) -> usize {
        let position = self.waiters.iter().position(|waiter| waiter.lease == lease);
        position.unwrap_or(self.waiters.len())
    }
}
