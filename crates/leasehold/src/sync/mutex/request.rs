//! The request for a lock as one of a set.

use leasehold_core::Claim;

use super::Mutex;
use crate::driver::acquire::{AcquireRequest, Wait};

/// How a lock is acquired as one of a [`LockSet`](crate::LockSet). Made by [`Mutex::for_lock`],
/// [`RwLock::for_read`](crate::RwLock::for_read), [`RwLock::for_write`](crate::RwLock::for_write) and
/// [`Semaphore::for_permits`](crate::Semaphore::for_permits).
#[derive(Clone, Debug)]
#[must_use = "give it to `Client::all`"]
pub struct LockRequest {
    pub(crate) mutex: Mutex,
}

impl LockRequest {
    pub(crate) fn new(mutex: &Mutex, claim: Claim) -> Self {
        let mut mutex = mutex.clone();
        mutex.options.claim = claim;
        Self { mutex }
    }

    pub(crate) fn request(&self, wait: Wait) -> AcquireRequest {
        self.mutex.request(self.mutex.options.claim, None, wait)
    }
}
