//! The state of a lease for its holder, and the cause of a bad one.

use std::fmt;

use crate::record::{Loss, Outcome};
use crate::time::Instant;

/// The state of a lease for its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The lock is held.
    Held {
        /// When it is given up unless it is renewed: a margin, which is a third of the ttl if not set, before the deadline.
        /// A fixed lease has no margin.
        until: Instant,
    },
    /// The lock is held, but may soon be lost: a renewal failed or is overdue.
    Jeopardy {
        /// When it is given up unless a renewal succeeds.
        until: Instant,
        /// What went wrong.
        cause: Cause,
    },
    /// The lock must not be relied on. This is final.
    ///
    /// The lease is no longer renewed. The store may keep it until it expires, or until the guard is released or dropped.
    Lost(Cause),
}

/// The kind of a state, without its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateKind {
    /// As [`State::Held`].
    Held,
    /// As [`State::Jeopardy`].
    Jeopardy(Cause),
    /// As [`State::Lost`].
    Lost(Cause),
}

impl State {
    /// The kind of the state.
    #[doc(hidden)]
    #[must_use]
    pub const fn kind(&self) -> StateKind {
        match *self {
            Self::Held { .. } => StateKind::Held,
            Self::Jeopardy { cause, .. } => StateKind::Jeopardy(cause),
            Self::Lost(cause) => StateKind::Lost(cause),
        }
    }

    /// Whether the lease is lost.
    #[must_use]
    pub const fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }

    /// Whether the lease is held and not in jeopardy.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        matches!(self, Self::Held { .. })
    }
}

/// Why a lease is in jeopardy or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The fixed lease has expired.
    Expired,
    /// Another lease holds the lock: this one ended early in the store.
    TakenOver,
    /// The store no longer knows the lease: its record was deleted or evicted, or the store
    /// was restarted, failed over or emptied.
    Deleted,
    /// An operator revoked the lease.
    Revoked,
    /// The store could not be reached, or did not reply, or could not renew.
    Unreachable,
    /// Too few replicas acknowledged a renewal in time.
    NotReplicated,
    /// The renewal was not sent in time: this process was stopped or too busy, or work blocked its runtime. Such work
    /// belongs into `spawn_blocking`.
    Paused,
    /// It was held for longer than the longest hold, and is no longer renewed.
    HeldTooLong,
    /// The client of this process was shut down and released all its leases.
    Released,
    /// The lease belongs to another process, of which this one is a fork.
    OtherProcess,
}

impl Cause {
    /// The cause that a reply implies, which shows that a lease does not hold its lock.
    #[must_use]
    pub const fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Lost(Loss::TakenOver) | Outcome::Refused { .. } => Self::TakenOver,
            // Also a new grant: the lease had ended before.
            _ => Self::Deleted,
        }
    }

    /// Its name in one word, for logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::TakenOver => "taken-over",
            Self::Deleted => "deleted",
            Self::Revoked => "revoked",
            Self::Unreachable => "unreachable",
            Self::NotReplicated => "not-replicated",
            Self::Paused => "paused",
            Self::HeldTooLong => "held-too-long",
            Self::Released => "released",
            Self::OtherProcess => "other-process",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its fixed lease has ended",
            Self::TakenOver => "another holds the lock",
            Self::Deleted => "the store no longer knows the lease",
            Self::Revoked => "an operator revoked the lease",
            Self::Unreachable => "the store did not confirm a renewal",
            Self::NotReplicated => "too few replicas acknowledged a renewal in time",
            Self::Paused => {
                "the renewal was not sent in time: the process was paused, or work blocked its runtime (see \
                 spawn_blocking)"
            }
            Self::HeldTooLong => "it was held for longer than allowed",
            Self::Released => "its client was shut down",
            Self::OtherProcess => "it belongs to the process that this one was forked from",
        })
    }
}
