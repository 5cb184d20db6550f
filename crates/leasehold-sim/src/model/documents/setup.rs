//! The setup of a model: its size, times and mutation.

use std::time::Duration;

setup! {
    /// A lock in a document, and its clients.
    Documents {
        /// The duration of a tick. The rule's allowance for drift is two ticks of a millisecond.
        tick: Duration = Duration::from_secs(1),
        /// How many ticks a lease lasts.
        ttl: u8 = 2,
        /// By how many ticks the clocks of the clients may gain, in sum, at any moments.
        gain: u8 = 0,
        /// Whether clients wait in a queue, and are notified of their grants.
        queue: bool = true,
        /// Whether holders renew their leases.
        renews: bool = true,
        /// Whether the store replies with the age of a document.
        ages: bool = false,
        /// How often the document is removed.
        removals: u8 = 0,
        /// How many of the first versions, "absent" included, are the same after a removal.
        repeated_versions: u8 = 0,
        /// Whether a write is applied whatever version is there.
        unconditional: bool = false,
        /// The rule that is changed.
        mutation: Option<Mutation> = None,
    }
}

/// A rule that is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// A client counts from when it received an earlier version.
    OtherVersion,
    /// The wall clock moves the time on while a lease holds the lock.
    WallWhileHeld,
    /// The wall clock moves the time on while clients wait.
    WallWhileWaiting,
    /// A request without a reply counts as refused, and the next one has another lease.
    OtherLease,
    /// A holder counts from the arrival of the reply.
    FromReply,
    /// A holder does not allow for drift.
    WithoutDrift,
    /// The age of a document is a tick more than the time since its run.
    OlderAge,
    /// The request of a holder is not written if it does not change the record.
    UnwrittenHold,
    /// The request of a waiter is not written if it does not change the record.
    UnwrittenWait,
    /// A lease ends by the time of the last version only.
    LastVersion,
    /// The client of a holder counts from its request, but a stamp changes only with the end of the lease.
    KeptStamp,
    /// A waiter relies on its notice.
    NeverPolls,
    /// A document is removed if nobody needs it by the wall clock.
    RemovedByWall,
}
