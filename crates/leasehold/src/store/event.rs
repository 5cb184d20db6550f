//! Events that a store sends to its clients.

use std::fmt;

use leasehold_core::Notice;

use super::key::{Key, Shard};

/// An event for one client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A waiting lease of this client was granted the lock or became the head of the queue, or a lease that
    /// holds it was revoked.
    Notice(Key, Notice),
    /// Another client changed or removed the record that this client has read last: the holder of a mutex must check
    /// whether it still holds it. A holder of permits need not, because each renewal of another one is such a change. This
    /// is a hint and may be spurious.
    Changed(Key),
    /// Events of these records may have been missed, or the records are lost: waiters must repeat their
    /// request, and holders must check.
    Interrupted(EventScope),
    /// These records may have moved from another shard, which has another clock: waiters must repeat
    /// their request. Nothing is lost, so holders need not check.
    Moved(EventScope),
}

/// The records that an event concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventScope {
    /// All records of the store.
    Store,
    /// All records that are in a shard when the event is received.
    Shard(Shard),
    /// One record.
    Record(Key),
}

/// Receives the events of a client.
pub trait Listener: fmt::Debug + Send + Sync {
    /// Receives one event. It is called wherever the store noticed the event, so it must not block, and
    /// must not call the store.
    fn notify(&self, event: Event);
}

/// The subscription of a client to its events. It ends when this is dropped.
#[must_use = "the subscription ends when this is dropped"]
pub struct Listening(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Listening {
    /// A subscription that a function ends.
    pub fn new(end: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(end)))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end();
        }
    }
}

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listening")
    }
}

/// How a refused client is notified that it should try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WakeupMode {
    /// The store keeps a queue, grants the lock to its head and notifies it: [`Event::Notice`].
    Grants,
    /// The store keeps no queue, but notifies refused clients of each change: [`Event::Changed`].
    Changes,
    /// Not at all: a waiter polls.
    Nothing,
}

impl fmt::Display for WakeupMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Grants => "by grants from the queue of the store",
            Self::Changes => "by notifications of changes",
            Self::Nothing => "not at all: they poll",
        })
    }
}
