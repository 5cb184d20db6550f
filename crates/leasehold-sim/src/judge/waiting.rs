//! Who waits, as the answers tell it.

use leasehold_core::{LeaseId, Ttl};

/// How much longer than two ttls a queue is kept after a question, in microseconds.
const SPARE: u64 = 1_000_000;

/// A lease that was refused and waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) lease: LeaseId,
    pub(super) ttl: Ttl,
    pub(super) tokens: u64,
}

/// Those who wait, in the order of coming.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    line: Vec<Waiter>,
    until: u64,
}

impl Waiting {
    /// Somebody was refused at `now` and waits, perhaps already. Answers how many came before it.
    pub(super) fn ask(&mut self, waiter: Waiter, now: u64) -> u64 {
        if self.line.is_empty() {
            self.until = 0;
        }
        let kept = now.saturating_add(waiter.ttl.as_millis() * 2_000 + SPARE);
        self.until = self.until.max(kept);
        let before = self.before(waiter.lease);
        if before == self.line.len() {
            self.line.push(waiter);
        }
        before as u64
    }

    /// Nobody waits any more if nobody has asked for too long.
    pub(super) fn forget(&mut self, now: u64) {
        if now >= self.until {
            self.line.clear();
        }
    }

    pub(super) fn leave(&mut self, lease: LeaseId) {
        self.line.retain(|waiter| waiter.lease != lease);
    }

    /// Somebody is granted the lock. Answers who came before it: they do not wait any more.
    pub(super) fn serve(&mut self, lease: LeaseId) -> Vec<LeaseId> {
        let before = self.before(lease);
        let before = self.line.drain(..before);
        let before = before.map(|waiter| waiter.lease).collect();
        self.leave(lease);
        before
    }

    /// Those at the front of whom this is true do not wait any more. Answers the first of the others.
    pub(super) fn pass_over(&mut self, is_over: impl Fn(LeaseId) -> bool) -> Option<LeaseId> {
        let stays = self.line.iter().position(|waiter| !is_over(waiter.lease));
        self.line.drain(..stays.unwrap_or(self.line.len()));
        self.line.first().map(|waiter| waiter.lease)
    }

    pub(super) fn find(&self, lease: LeaseId) -> Option<Waiter> {
        self.line
            .iter()
            .find(|waiter| waiter.lease == lease)
            .copied()
    }

    pub(super) fn all(&self) -> &[Waiter] {
        &self.line
    }

    /// How many came before a lease: all, if it does not wait.
    fn before(&self, lease: LeaseId) -> usize {
        let place = self.line.iter().position(|waiter| waiter.lease == lease);
        place.unwrap_or(self.line.len())
    }
}
