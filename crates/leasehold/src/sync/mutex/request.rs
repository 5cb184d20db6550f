//! The request for a lock as one of a set.

use std::sync::Arc;

use super::Mutex;
use crate::driver::acquire::{AcquireRequest, Wait};
use crate::driver::context::{AcquireOptions, Purpose};

/// How a lock is acquired as one of a [`LockSet`](crate::LockSet). Made by [`Mutex::for_lock`],
/// [`RwLock::for_read`](crate::RwLock::for_read), [`RwLock::for_write`](crate::RwLock::for_write) and
/// [`Semaphore::for_permits`](crate::Semaphore::for_permits).
#[derive(Clone, Debug)]
#[must_use = "give it to `Client::all`"]
pub struct LockRequest {
    pub(crate) mutex: Mutex,
    purpose: Option<Arc<Purpose>>,
}

impl LockRequest {
    pub(crate) fn new(mutex: &Mutex, purpose: Option<Arc<Purpose>>) -> Self {
        Self {
            mutex: mutex.clone(),
            purpose,
        }
    }

    pub(crate) fn request(&self, wait: Wait) -> AcquireRequest {
        AcquireRequest {
            key: self.mutex.key.clone(),
            options: self.options(),
            wait,
        }
    }

    pub(crate) fn options(&self) -> AcquireOptions {
        AcquireOptions {
            purpose: self.purpose.clone(),
            ..self.mutex.options.clone()
        }
    }
}
