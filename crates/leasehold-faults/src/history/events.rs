//! The events of a history, each recorded as a line of JSON with its instant.

use serde::{Deserialize, Serialize};

use super::faults::FaultEvent;
use crate::clock::Nanos;

/// An event in a process with holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    Started {
        ttl_ms: u64,
        handoff: bool,
    },
    /// An event of a hold. Holds are numbered by their process.
    Hold(u64, HoldEvent),
    /// The process, or a thread of it that was ready, did not run from `since` to the event's instant.
    Stalled {
        since: Nanos,
    },
    /// No task ran from `since` to the event's instant, though a processor was free: something blocked the
    /// thread that runs them.
    Blocked {
        since: Nanos,
    },
    /// Observers of these elections begin. Each is told the leader immediately, and then each change.
    Observing {
        elections: Vec<String>,
    },
    /// An observer was told the leader of an election, or that nobody leads.
    LeaderObserved {
        election: String,
        leader: Option<ObservedLeader>,
    },
    /// An observer was told an error.
    ObserverFailed {
        election: String,
        reason: String,
    },
    Ended {
        released: bool,
    },
}

/// A leader, as an observer is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ObservedLeader {
    pub(crate) lease: String,
    pub(crate) term: u64,
    /// The process, and the number of its hold.
    pub(crate) process: String,
    pub(crate) hold: u64,
}

/// An event of a hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HoldEvent {
    /// Its acquisition begins. It may re-enter the lease of another hold of the same owner.
    Requested {
        name: String,
        fixed: bool,
        reenters: Option<u64>,
    },
    /// It shares the lock with others.
    Shares(Share),
    /// It is a run of a job, once for this key.
    Runs(String),
    Granted {
        lease: String,
        token: u64,
        ttl_ms: u64,
    },
    NotGranted {
        reason: String,
    },
    /// The state was read after `before` and not after the event's instant.
    Observed {
        before: Nanos,
        state: LeaseState,
        kind: ObservationKind,
    },
    /// The critical step has ended, with this reply of the fenced resource, or an error.
    Stepped(String),
    Releasing,
    /// The job is known to be complete for the key: by this run if it was granted, else by another one.
    Completed,
    /// The release has returned. Only "ok" says that the store confirmed it.
    Released {
        outcome: String,
    },
}

/// What a hold has of a lock that is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Share {
    Read,
    Upgradable,
    Write,
    Permits { weight: u32, limit: u32 },
}

impl Share {
    /// A number so large that readers never add up to it.
    const HALF: u64 = 1 << 20;

    /// How much of the limit it takes: an upgradable reader more than half, a writer all.
    pub(crate) fn weight(self) -> u64 {
        match self {
            Self::Read => 1,
            Self::Upgradable => Self::HALF + 1,
            Self::Write => self.limit(),
            Self::Permits { weight, .. } => weight.into(),
        }
    }

    pub(crate) fn limit(self) -> u64 {
        match self {
            Self::Permits { limit, .. } => limit.into(),
            _ => 2 * Self::HALF + 1,
        }
    }
}

/// How a state was observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ObservationKind {
    Check,
    /// A check that began a critical step.
    Step,
    /// The stream of states reported it.
    Notification,
    /// A check after the hold count in the store was read: the expected count, and the lease with its count.
    Count(u32, Option<(String, u32)>),
}

/// The state of a lease, by its guard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LeaseState {
    Held(Nanos),
    Jeopardy(Nanos, String),
    /// Beyond its deadline after a pause, with a watchdog: only the store knows.
    Paused,
    Lost(String),
}

impl LeaseState {
    /// The deadline until which the holder may rely on the lock. `None`: it may not.
    pub(crate) fn until(&self) -> Option<Nanos> {
        match self {
            Self::Held(until) | Self::Jeopardy(until, _) => Some(*until),
            Self::Paused | Self::Lost(_) => None,
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }
}

/// An event in the campaign.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Note {
    World(WorldInfo),
    Fault(FaultEvent),
    Sampled(Sample),
    Wrote(FencedWrite),
    /// The campaign itself observed a violation.
    Violation(String),
    /// A record right after all holders had ended.
    HeldAtEnd {
        name: String,
        lease: String,
    },
    /// The leader of an election after the last fault. All observers were waited for.
    FinalLeader {
        election: String,
        lease: String,
    },
}

/// What the checker needs to know of a world.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct WorldInfo {
    /// The difference between the time in a token and the instant of its grant. `None`: tokens have no such time, as
    /// the server's clock is set in this world.
    pub(crate) wall: Option<Nanos>,
    /// The number of servers. More than one are many masters, of which fewer than a majority forget at a time.
    pub(crate) servers: usize,
    /// Whether all replicas of a server, or its standby, acknowledge each grant before it counts, so that a failover
    /// forgets none.
    pub(crate) replicated: bool,
    /// Whether nodes of the watchdog keep leases of live processes alive and release those of dead ones.
    pub(crate) watched: bool,
}

/// The record of a name at some instant between `from` and the event's instant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) from: Nanos,
    pub(crate) holds: Vec<(String, u32)>,
    pub(crate) ttl_ms: i64,
}

/// A decision of the fenced resource.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FencedWrite {
    pub(crate) process: String,
    pub(crate) hold: u64,
    pub(crate) name: String,
    pub(crate) token: u64,
    pub(crate) accepted: bool,
}
