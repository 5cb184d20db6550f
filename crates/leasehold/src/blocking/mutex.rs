//! The blocking [`Mutex`].

use std::time::Duration;

use super::Guard;
use super::runtime::Threads;
use crate::{Durability, Error, LockInfo, Owner, Result};

thread_local! {
    /// The owner that stands for this thread.
    static THREAD: Owner = Owner::new();
}

/// A lock with a name. See [`crate::Mutex`]; its owner is the thread that acquires it.
#[derive(Clone, Debug)]
pub struct Mutex {
    threads: Threads,
    mutex: crate::Mutex,
}

impl Mutex {
    pub(crate) fn new(threads: Threads, mutex: crate::Mutex) -> Self {
        Self { threads, mutex }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.mutex.name()
    }

    /// The same lock with another ttl. See [`crate::Mutex::ttl`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::ttl`].
    pub fn ttl(&self, ttl: Duration) -> Result<Self> {
        self.with(self.mutex.ttl(ttl))
    }

    /// The same lock with a longest hold. See [`crate::Mutex::max_hold`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::max_hold`].
    pub fn max_hold(&self, max_hold: Duration) -> Result<Self> {
        self.with(self.mutex.max_hold(max_hold))
    }

    /// The same lock with a fixed lease. See [`crate::Mutex::lease`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::lease`].
    pub fn lease(&self, lease: Duration) -> Result<Self> {
        self.with(self.mutex.lease(lease))
    }

    /// The same lock with another durability. See [`crate::Mutex::durability`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::durability`].
    pub fn durability(&self, durability: Durability) -> Result<Self> {
        self.with(self.mutex.durability(durability))
    }

    /// Acquires the lock, and waits without a limit. See [`crate::Mutex::lock`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::lock`], and inside an async runtime.
    pub fn lock(&self) -> Result<Guard> {
        let guard = self.threads.wait(self.own().lock())?;
        Ok(Guard::new(self.threads.clone(), guard))
    }

    /// The last error of the store, if tasks wait for this lock. See [`crate::Mutex::last_error`].
    #[must_use]
    pub fn last_error(&self) -> Option<Error> {
        self.mutex.last_error()
    }

    /// Acquires the lock if it is free. See [`crate::Mutex::try_lock`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::try_lock`], and inside an async runtime.
    pub fn try_lock(&self) -> Result<Option<Guard>> {
        let guard = self.threads.wait(self.own().try_lock())?;
        Ok(guard.map(|guard| Guard::new(self.threads.clone(), guard)))
    }

    /// Acquires the lock, and waits no longer than `timeout`. See [`crate::Mutex::lock_timeout`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::lock_timeout`], and inside an async runtime.
    pub fn lock_timeout(&self, timeout: Duration) -> Result<Option<Guard>> {
        let guard = self.threads.wait(self.own().lock_timeout(timeout))?;
        Ok(guard.map(|guard| Guard::new(self.threads.clone(), guard)))
    }

    /// Acquires the lock, does the work on this thread and releases the lock.
    ///
    /// Work on a thread cannot be dropped when the lease is lost: check [`Guard::state`] or call
    /// [`Guard::ensure`] before each step that matters.
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::run`]: [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the lease was lost
    /// before the work had ended, whose value is then dropped.
    pub fn run<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T> {
        let guard = self.lock()?;
        let value = work(&guard);
        guard.still_held()?;
        if let Err(error) = guard.release() {
            tracing::debug!(%error, "after the work");
        }
        Ok(value)
    }

    /// Whether the lock is held at this moment. See [`crate::Mutex::is_locked`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::is_locked`].
    pub fn is_locked(&self) -> Result<bool> {
        self.threads.wait(self.mutex.is_locked())
    }

    /// The time until the lease of the holder expires. See [`crate::Mutex::time_left`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::time_left`].
    pub fn time_left(&self) -> Result<Option<Duration>> {
        self.threads.wait(self.mutex.time_left())
    }

    /// The holder of the lock at this moment. See [`crate::Mutex::holder`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::holder`].
    pub fn holder(&self) -> Result<Option<LockInfo>> {
        self.threads.wait(self.mutex.holder())
    }

    /// Frees the lock, whichever client holds it. See [`crate::Mutex::force_release`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::force_release`].
    pub fn force_release(&self) -> Result<Option<LockInfo>> {
        self.threads.wait(self.mutex.force_release())
    }

    fn with(&self, mutex: Result<crate::Mutex>) -> Result<Self> {
        Ok(Self::new(self.threads.clone(), mutex?))
    }

    fn own(&self) -> crate::Mutex {
        THREAD.with(|owner| self.mutex.owned_by(owner))
    }
}
