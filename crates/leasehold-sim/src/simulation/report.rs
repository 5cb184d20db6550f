//! The result of a simulation.

use std::collections::BTreeMap;

use leasehold_checker as checker;

use crate::store_checker::Promise;

/// Something that a run must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Occurrence {
    /// The store refused a request.
    Refused,
    /// The store renewed a lease.
    Renewed,
    /// The store replied that a lease is lost.
    Lost,
    /// The store passed over a dead head.
    PassedOver,
    /// A message was lost by the network.
    LostMessage,
    /// A message arrived twice.
    DoubledMessage,
    /// A message was dropped because its machine was disconnected.
    Disconnected,
    /// A request was applied after its connection had broken.
    LateRequest,
    /// A request was applied when the store went on after it was stopped.
    DelayedByStore,
    /// A process was stopped.
    Stopped,
    /// A process was killed.
    Killed,
    /// A request had no reply in time.
    NoReply,
    /// A notified grant was accepted.
    Accepted,
    /// A notified grant was outdated.
    Outdated,
    /// A grant had expired when its reply came.
    GrantExpired,
    /// A grant that nobody waited for was notified.
    Orphan,
    /// A waiter in the queue repeated its request because its timer expired.
    RetryTimer,
    /// A waiter repeated its request because the one before it should have accepted its grant.
    NextTimer,
    /// A waiter in the queue repeated its request on a new connection.
    RequestAfterReconnect,
    /// A lease id was abandoned because the effect of its requests is unknown.
    Abandoned,
    /// A waiter gave up.
    GaveUp,
    /// A failed release was repeated, or a late one was sent.
    RepeatedRelease,
    /// A run failed, crashed, or was paused and lost its lease.
    RunFailed,
    /// A run was completed after another one of its day had failed.
    RunTakenOver,
    /// A run was completed.
    Completed,
    /// A holder has learned that it wrote the completion of its run under its lease.
    NoteWritten,
    /// A repeated write or release had completed its run before.
    CompletedBefore,
    /// A run was found to be complete by a request.
    FoundComplete,
    /// A waiter was told that its run is complete.
    ToldComplete,
    /// The store has refused a late write of an earlier value.
    LateValue,
    /// An observer was notified that the store fails.
    Silence,
    /// A node of the watchdog renewed a lease.
    RenewedByNode,
    /// A node released a lease of a dead client.
    ReleasedByNode,
    /// A node was restarted.
    NodeRestarted,
    /// A paused holder went on, because a node had kept its lease.
    WentOn,
    /// The first of many masters ran a script.
    Script,
}

/// What happened in a simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How often a client began to rely on the lock.
    pub acquisitions: u64,
    /// How often each contender was granted a lock over many masters.
    pub grants: Vec<u64>,
    occurrences: BTreeMap<Occurrence, u64>,
}

impl Report {
    /// How often something happened.
    #[must_use]
    pub fn times(&self, occurrence: Occurrence) -> u64 {
        self.occurrences.get(&occurrence).copied().unwrap_or(0)
    }

    /// Adds what happened in another simulation.
    pub fn add(&mut self, other: &Self) {
        self.acquisitions += other.acquisitions;
        self.grants.extend(&other.grants);
        for (occurrence, times) in &other.occurrences {
            *self.occurrences.entry(*occurrence).or_default() += times;
        }
    }

    pub(super) fn count(&mut self, occurrence: Occurrence) {
        *self.occurrences.entry(occurrence).or_default() += 1;
    }
}

/// How a simulation contradicts the promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The replies or notices of the store violate a promise.
    Store(Promise),
    /// Holders relied on the lock against a promise.
    Holders(checker::Violation),
    /// The lock was not granted within the promised time.
    NotServed,
    /// A lease was lost, although nothing had disturbed its holder.
    LostEarly,
    /// A run was begun for a key that was complete, or a second one was completed.
    Repeated,
    /// A run was confirmed as complete without a completion, or the other way round.
    Forgotten,
    /// A day had no completed run.
    NotRun,
    /// A value went back for an observer, or was behind one that was known to be stored.
    ValueWentBack,
    /// The first result of an observer was read before its subscription.
    OldReading,
    /// The newest value of a leader, or the end of its lease, did not reach all observers in time.
    NotObserved,
    /// A node released a lease of a living client.
    LivingReleased,
    /// A node renewed a lease that is not registered, or whose client is known to be dead.
    UnknownRenewed,
    /// A paused holder was not notified in time that its lease had ended.
    NotNotified,
    /// The lock was held after every process was dead and every ttl was over.
    Leftover,
}
