//! An event of a lock as it is printed.

use std::time::SystemTime;

use leasehold::{ClientInfo, LockEvent};

pub(crate) struct EventRecord {
    /// When it was noticed, by the clock of this machine.
    pub(crate) time: SystemTime,
    /// The name of the lock.
    pub(crate) name: String,
    pub(crate) event: LockEvent,
    /// The client of the lease that was granted, if its client info is known.
    pub(crate) client: Option<ClientInfo>,
}

impl EventRecord {
    /// When the lock was observed last, if the event says that it is not any more.
    pub(crate) fn unobserved_since(&self) -> Option<SystemTime> {
        match self.event {
            LockEvent::Unobserved(time) => self.time.checked_sub(time),
            _ => None,
        }
    }
}
