//! The timers of an acquisition.

use crate::time::Instant;

/// A reason for a request at a later time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// The holder may have died, or the store may be reached again.
    Retry,
    /// The waiter before this one has accepted its grant by now, or is dead.
    NextInQueue,
    /// The record was changed.
    Changed,
}

/// The timers of an acquisition. Sending a request stops all of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timers([Option<Instant>; 3]);

impl Timers {
    pub(super) fn set(&mut self, timer: Timer, at: Instant) {
        self.0[timer as usize] = Some(at);
    }

    pub(super) const fn get(&self, timer: Timer) -> Option<Instant> {
        self.0[timer as usize]
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.0.into_iter().flatten().min()
    }
}
