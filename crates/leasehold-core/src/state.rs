//! What a lease is worth to its holder, and why it is worth less.

use std::fmt;

use crate::mutex::{Loss, Outcome};
use crate::time::Instant;

/// What a holder may believe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The lock is held.
    Held {
        /// It is, at least until here.
        until: Instant,
    },
    /// The lock is held, but it may soon not be: a renewal failed or is overdue.
    Jeopardy {
        /// It is given up here unless a renewal succeeds.
        until: Instant,
        /// What went wrong.
        cause: Cause,
    },
    /// The lock must not be relied on. This is final.
    Lost(Cause),
}

/// What kind of state it is, whatever its times.
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
    /// What kind of state it is.
    #[must_use]
    pub const fn kind(&self) -> StateKind {
        match *self {
            Self::Held { .. } => StateKind::Held,
            Self::Jeopardy { cause, .. } => StateKind::Jeopardy(cause),
            Self::Lost(cause) => StateKind::Lost(cause),
        }
    }

    /// Whether the lease is over.
    #[must_use]
    pub const fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }

    /// Whether all is well.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        matches!(self, Self::Held { .. })
    }
}

/// Why a lease is in jeopardy or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The fixed lease ran to its end.
    Expired,
    /// Another lease holds the lock: this one ended in the store before its time.
    TakenOver,
    /// The store does not know the lease any more: its record was deleted or evicted, or the store
    /// was restarted, failed over or emptied.
    Deleted,
    /// An operator freed the lock.
    Revoked,
    /// The store could not be reached, or did not answer, or could not renew.
    Unreachable,
    /// Too few replicas acknowledged a renewal in time.
    NotReplicated,
    /// The renewal was not sent in time: this process was stopped, or too busy.
    Paused,
    /// It was held for longer than the longest time allowed, and is not renewed any more.
    HeldTooLong,
    /// The client of this process was shut down and released all its leases.
    Released,
    /// The lease belongs to another process, of which this one is a fork.
    OtherProcess,
}

impl Cause {
    /// What an answer of the store means that says that a lease does not hold its lock.
    #[must_use]
    pub const fn of(answer: &Outcome) -> Self {
        match answer {
            Outcome::Lost(Loss::TakenOver) | Outcome::Refused { .. } => Self::TakenOver,
            // Also granted anew, for it had ended before.
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
            Self::Deleted => "the store does not know the lease any more",
            Self::Revoked => "an operator freed the lock",
            Self::Unreachable => "the store did not confirm a renewal",
            Self::NotReplicated => "too few replicas acknowledged a renewal in time",
            Self::Paused => "the renewal was not sent in time: the process was paused or too busy",
            Self::HeldTooLong => "it was held for longer than allowed",
            Self::Released => "its client was shut down",
            Self::OtherProcess => "it belongs to the process that this one was forked from",
        })
    }
}
