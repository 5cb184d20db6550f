//! The setup of a simulation.

use super::calendar::Timetable;
use super::contention::Contention;

/// A simulation to run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// How many clients want the lock.
    pub clients: usize,
    /// How requests and replies travel.
    pub network: Network,
    /// Which leases the clients acquire.
    pub leases: Leases,
    /// Whether holders proclaim values, which all clients observe.
    pub elects: bool,
    /// Which nodes of the watchdog keep the leases of paused holders.
    pub watchdog: Option<Watchdog>,
    /// By how many millionths a client's clock may be slower or faster than the store's.
    pub drift_ppm: (i64, i64),
    /// What happens.
    pub scenario: Scenario,
    /// Whether clients acquire the lock for runs of a job, one for each key.
    pub runs: bool,
    /// The rule that is changed, to show that a check notices it.
    pub mutation: Option<Mutation>,
}

/// How requests and replies travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Each message may be lost, doubled, or delayed for longer than a client waits. The store has no queue
    /// and no notices. Ttls are as short as users choose them.
    Datagrams,
    /// Messages arrive in order, until the connection breaks. The store may detect that much later, and may
    /// still apply what was sent before. It has a queue, and notifies its grants. Ttls are long enough to
    /// differ from the acceptance ttl.
    Connections,
}

/// Which nodes of the watchdog keep the leases of paused holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watchdog {
    /// One on each machine, which notices the end of its processes.
    Local,
    /// One on another machine, for all.
    Remote,
}

/// Which leases the clients acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leases {
    /// Renewed and fixed ones, with re-entry.
    Mixed,
    /// Fixed ones, with re-entry: no margin protects them but the drift allowance.
    Fixed,
    /// Renewed ones, with one hold.
    Renewed,
}

/// What happens in a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Random fault events, until so many events have happened. Then the faults end, and the lock must be
    /// granted again.
    Random(usize),
    /// The first two waiters in the queue are killed, which the store detects. Then the holder releases.
    DeadHeads,
    /// The head of the queue is stopped, or disconnected undetected. Then the holder releases.
    SilentHead,
    /// The same, and the second waiter is killed, which the store detects.
    SilentHeadDeadSecond,
    /// The holder is killed.
    DeadHolder,
    /// The connection of the head breaks while its grant is under way.
    LostGrant,
    /// The head gives up. Then the holder releases.
    LeavingHead,
    /// The same, after the store could not notify the head for a while, and refused its request to wait.
    RefusedHead,
    /// A request of a waiter that gave up reaches the store after its release. Then the holder releases.
    LateRequest,
    /// The notice of a grant to the head is kept, until that has ended and the head holds by a later grant.
    LateNotice,
    /// The ttl is five minutes, and each message takes long. The holder releases, and the head must keep the lock.
    SlowNetwork,
    /// The holder writes the completion of its run. The reply is lost, and so is the lease before the next attempt.
    LostNote,
    /// The holder, which a node watches, is paused for less than the longest pause.
    PausedHolder,
    /// The same for longer than that. Then it goes on.
    LongPause,
    /// A holder that a node watches is killed, perhaps while it is paused.
    WatchedDeath,
    /// A holder that a node watches is cut off from the store. When it has lost its lease, it is paused.
    PausedLoser,
    /// A node is restarted without its data. Later the holder is paused for less than the longest pause.
    NodeRestart,
    /// The same while the holder is paused. Then the holder goes on.
    NodeRestartInPause,
    /// Processes run a daily job for a month.
    Daily(Timetable),
    /// Contenders acquire a lock over many masters, without a fault.
    Contention(Contention),
}

/// A rule that is changed in the store, or around the state machines of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A renewal that is confirmed after the loss revives the lease.
    RevivedLease,
    /// One lease id serves all acquisitions of a client.
    ReusedLeaseId,
    /// A notified grant counts for the whole ttl of the request.
    AcceptsFullTtl,
    /// A renewal asks for ten times the ttl.
    RenewsForLonger,
    /// A notified grant is accepted although there is no time to renew it.
    AcceptsLate,
    /// A holder takes each notice of another grant for one of a later grant.
    TakesOldGrantForNew,
    /// The next waiter in the queue does not check whether the one before it accepts its grant.
    IgnoresNext,
    /// Waiters in the queue do not repeat their requests.
    NoRetryTimer,
    /// Waiters do not repeat their requests on a new connection.
    NoRequestAfterReconnect,
    /// Waiters that give up do not release their place in the queue.
    NoRelease,
    /// A grant that nobody waits for is not released.
    KeepsOrphans,
    /// The store takes every waiter for a living one, as by counting subscriptions to patterns.
    NotifiesDeadHeads,
    /// The store notifies a grant to the waiter right behind it, living or not.
    NotifiesDeadNext,
    /// The store is cut off between a release and its completion, now and then.
    ReleasesFirst,
    /// The store decides whether a run is complete when it is asked for, and not again when it is granted.
    DecidesOnce,
    /// A holder takes a write of its completion without a reply for one that was not applied.
    TakesSilenceForRejection,
    /// The slots of a daily job begin at midnight, to the moment.
    SlotByFloor,
    /// A start of a daily job belongs to the nearest slot, although the user has chosen the anchor.
    TrialByNearestSlot,
    /// A client that finds the lock held skips its run.
    SkipsIfHeld,
    /// The notes of a leader have no numbers.
    WritesWithoutNumber,
    /// A new observer takes the last result of another one.
    SharesOldReadings,
    /// Observers do not read a change that the store pushes.
    IgnoresPushes,
    /// Observers do not repeat a reading without a reply.
    NoRepeatedRead,
    /// Observers do not read the end of a lease.
    NoReadAtEnd,
    /// A holder gives up its lease after a pause, although a node may have kept it.
    TakesPausesForLosses,
    /// A holder ignores the reply that its lease is lost.
    IgnoresLosses,
    /// A client does not unregister what it no longer holds.
    KeepsRegistrations,
    /// A client sends no heartbeats to its node.
    NoHeartbeats,
    /// A client registers nothing on a further connection to its node.
    NoRegistrationAfterReconnect,
    /// A node does not notice the end of a process.
    IgnoresDeath,
    /// A node takes the end of a connection for that of the process.
    DiesWithConnection,
    /// A node renews the leases of a silent client without a limit.
    RenewsForEver,
    /// A node that is restarted goes on with the leases from before.
    NodeKeepsLeases,
}

impl Setup {
    /// Three clients on a lossy network. Their clocks drift as far as the allowance covers: `drift(ttl)` is a
    /// hundredth of the ttl, so the slowest covered clock shows 0.99 s in a second of the store. A fast
    /// one is always safe.
    pub const DATAGRAMS: Self = Self {
        clients: 3,
        network: Network::Datagrams,
        leases: Leases::Mixed,
        elects: false,
        watchdog: None,
        drift_ppm: (-10_000, 10_000),
        scenario: Scenario::Random(1_000),
        runs: false,
        mutation: None,
    };

    /// Five clients that wait in the queue of the store.
    pub const CONNECTIONS: Self = Self {
        clients: 5,
        network: Network::Connections,
        leases: Leases::Renewed,
        drift_ppm: (-9_000, 9_000),
        scenario: Scenario::Random(600),
        ..Self::DATAGRAMS
    };

    /// The same clients, each watched by a node on its machine.
    pub const WATCHED: Self = Self {
        watchdog: Some(Watchdog::Local),
        scenario: Scenario::Random(2_000),
        ..Self::CONNECTIONS
    };

    /// The clients of [`Setup::CONNECTIONS`] run a job, and wait for its completion.
    pub const RUNS: Self = Self {
        runs: true,
        ..Self::CONNECTIONS
    };

    /// A daily job.
    #[must_use]
    pub const fn daily(timetable: Timetable) -> Self {
        Self {
            // The daily job starts its processes itself.
            clients: 0,
            scenario: Scenario::Daily(timetable),
            ..Self::CONNECTIONS
        }
    }

    /// Contenders for a lock over many masters.
    #[must_use]
    pub const fn contention(contention: Contention) -> Self {
        Self {
            clients: 0,
            scenario: Scenario::Contention(contention),
            ..Self::CONNECTIONS
        }
    }

    /// Whether a rule is changed.
    pub(super) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    pub(super) fn has_queue(&self) -> bool {
        self.network == Network::Connections
    }
}

impl Mutation {
    /// Whether the store is changed. The checker of its replies would notice that immediately. Here the waiters
    /// must suffer from it.
    pub(super) const fn changes_store(self) -> bool {
        matches!(
            self,
            Self::NotifiesDeadHeads
                | Self::NotifiesDeadNext
                | Self::ReleasesFirst
                | Self::DecidesOnce
        )
    }
}
