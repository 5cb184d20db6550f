//! What a store tells its clients without being asked.

use std::fmt;

use leasehold_core::Notice;

use super::{Key, Shard};

/// News for one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A lease of this client that waits for a name holds the lock now, or is the next.
    Notice(Key, Notice),
    /// Somebody else changed or removed the record that this client has read last: whoever holds the
    /// lock asks whether it still does. A hint: it may come without need.
    Changed(Key),
    /// The store could not tell anything of these records for a while, or they are gone: whoever waits
    /// or holds asks again.
    Interrupted(EventScope),
    /// These records may have come from another shard, which has another clock: whoever waits asks
    /// again. Nothing is lost by that, so whoever holds need not.
    Moved(EventScope),
}

/// Which records an event concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventScope {
    /// All of the store.
    Store,
    /// All that are in a shard when it is told.
    Shard(Shard),
    /// One.
    Record(Key),
}

/// Takes the news of a client.
pub trait Listener: fmt::Debug + Send + Sync {
    /// Takes one event. Called wherever the store noticed it: it must not block, and must not call
    /// the store.
    fn notify(&self, event: Event);
}

/// How somebody who was refused learns that it is time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeupMode {
    /// The store keeps a queue and tells the head that it was granted the lock: [`Event::Notice`].
    Grants,
    /// No queue, but the refused are told when the record was changed: [`Event::Changed`].
    Changes,
    /// Not at all: whoever waits asks again after a pause.
    Nothing,
}

impl fmt::Display for WakeupMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Grants => "the store's queue grants the lock to them",
            Self::Changes => "the store tells them of every change",
            Self::Nothing => "they ask again after a pause",
        })
    }
}
