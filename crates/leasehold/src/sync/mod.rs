//! The lock types.

pub(crate) mod election;
pub(crate) mod job;
pub(crate) mod latch;
pub(crate) mod lock_events;
pub(crate) mod lock_set;
pub(crate) mod mutex;
pub(crate) mod rw_lock;
pub(crate) mod semaphore;
