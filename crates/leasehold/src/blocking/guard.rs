//! The blocking [`Guard`].

use std::time::Duration;

use super::runtime::Threads;
use crate::{Cause, Instant, LeaseId, Result, State, Token};

/// A lock that is held. See [`crate::Guard`].
#[derive(Debug)]
#[must_use = "a guard that is dropped at once releases the lock at once"]
pub struct Guard {
    // Dropped first: the threads must exist for its release.
    guard: crate::Guard,
    threads: Threads,
}

impl Guard {
    pub(crate) fn new(threads: Threads, guard: crate::Guard) -> Self {
        Self { guard, threads }
    }

    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &str {
        self.guard.name()
    }

    /// The fencing token. See [`crate::Guard::token`].
    #[must_use]
    pub fn token(&self) -> Token {
        self.guard.token()
    }

    /// The id of the lease. See [`crate::Guard::lease_id`].
    #[must_use]
    pub fn lease_id(&self) -> LeaseId {
        self.guard.lease_id()
    }

    /// Until when the store certainly keeps the lease. See [`crate::Guard::deadline`].
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.guard.deadline()
    }

    /// The time until [`Guard::deadline`].
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.guard.time_left()
    }

    /// What the lease is worth at this instant. See [`crate::Guard::state`].
    #[must_use]
    pub fn state(&self) -> State {
        self.guard.state()
    }

    /// Waits until the lease is lost, and returns the cause. See [`crate::Guard::lost`].
    ///
    /// # Errors
    ///
    /// Inside an async runtime.
    pub fn lost(&self) -> Result<Cause> {
        self.threads.wait(async { Ok(self.guard.lost().await) })
    }

    /// Makes sure that the lease lasts for at least `duration` more. See [`crate::Guard::ensure`].
    ///
    /// # Errors
    ///
    /// As [`crate::Guard::ensure`].
    pub fn ensure(&self, duration: Duration) -> Result<()> {
        self.threads.wait(self.guard.ensure(duration))
    }

    /// Releases the lock and waits for the reply. See [`crate::Guard::release`].
    ///
    /// # Errors
    ///
    /// As [`crate::Guard::release`].
    pub fn release(self) -> Result<()> {
        let Self { guard, threads } = self;
        threads.wait(guard.release())
    }

    pub(crate) fn still_held(&self) -> Result<()> {
        match self.guard.state() {
            State::Lost(cause) => Err(self.guard.lost_error(cause)),
            _ => Ok(()),
        }
    }
}
