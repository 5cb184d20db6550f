//! Requests to a store, and its replies.

use leasehold_core::{Mismatch, Op, Outcome, StoreTime};

use super::key::Key;
use crate::{Durability, Error, ErrorKind, Result};

/// An operation on the record of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// The record.
    pub key: Key,
    /// The operation.
    pub op: Op,
    /// The replicas that must acknowledge a grant or renewal before it takes effect. All requests of one
    /// lease have the same durability.
    pub durability: Durability,
}

impl Request {
    /// An operation that needs no replicas.
    #[must_use]
    pub const fn new(key: Key, op: Op) -> Self {
        Self {
            key,
            op,
            durability: Durability::None,
        }
    }

    /// The same request with another durability.
    #[must_use]
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Whether this is an acquisition.
    pub(crate) const fn acquires(&self) -> bool {
        matches!(self.op, Op::Acquire { .. })
    }
}

/// The result of a request. Exhaustive, as a fourth case is impossible.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The request was applied.
    Applied {
        /// The outcome by the rule.
        outcome: Outcome,
        /// The store's time of the change. `None`: a release, for which it did not read its clock.
        now: Option<StoreTime>,
    },
    /// The request was certainly not applied.
    Rejected(Error),
    /// There was no reply: the request may have been applied, or may still be.
    Unknown(Error),
}

impl Reply {
    /// The reply to a request that the rule has decided. A name that is used otherwise is a conflict, and nothing was
    /// applied.
    pub(super) fn decided(key: &Key, outcome: Outcome, now: StoreTime) -> Self {
        match outcome {
            Outcome::Mismatch(mismatch) => {
                Self::Rejected(self::mismatch(mismatch).for_lock(&key.name))
            }
            outcome => Self::Applied {
                outcome,
                now: Some(now),
            },
        }
    }

    /// The outcome, or the error.
    pub(crate) fn outcome(&self) -> Result<&Outcome, &Error> {
        match self {
            Self::Applied { outcome, .. } => Ok(outcome),
            Self::Rejected(error) | Self::Unknown(error) => Err(error),
        }
    }

    /// The same reply with another error, if it is one.
    pub(crate) fn map_error(self, map: impl FnOnce(Error) -> Error) -> Self {
        match self {
            Self::Applied { .. } => self,
            Self::Rejected(error) => Self::Rejected(map(error)),
            Self::Unknown(error) => Self::Unknown(map(error)),
        }
    }
}

/// The error of a name that is used otherwise.
pub(crate) fn mismatch(mismatch: Mismatch) -> Error {
    Error::new(ErrorKind::Conflict, mismatch.to_string())
}

/// The error of an outcome that the rule does not allow.
pub(crate) fn unexpected(outcome: &str) -> Error {
    let message = format!("the store sent an invalid reply: {outcome}");
    Error::new(ErrorKind::Store, message)
}
