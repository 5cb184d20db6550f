//! The source from which the rule reads a record.

use std::fmt;

use super::rows::{Head, Holder, Part, Row, Waiter};
use crate::id::ClientId;

/// The record of one name, as a store has it before the operation.
///
/// Each method may stop the rule, because the part is not loaded or cannot be read.
pub trait Source {
    /// The head, the default one if nothing is stored.
    fn head(&mut self) -> Result<Head, Stop>;

    /// A row, if there is one. It may have ended.
    fn row(&mut self, part: &Part) -> Result<Option<Row>, Stop>;

    /// The rows of all holders, in any order.
    fn holders(&mut self) -> Result<Vec<Holder>, Stop>;

    /// The first waiter at a place or behind it.
    fn waiter_from(&mut self, place: u64) -> Result<Option<Waiter>, Stop>;

    /// The number of waiters from place `from` on and before place `to`.
    fn waiters_between(&mut self, from: u64, to: u64) -> Result<u32, Stop>;

    /// Whether a client is alive: whether a notice would reach it. The reply is the same throughout one run.
    fn reaches(&mut self, client: ClientId) -> Result<bool, Stop>;
}

/// Why the rule has stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A part is not loaded. The store loads it and runs the rule again.
    Missing(Need),
    /// A row is of another class than its id, or cannot be read.
    Damaged(&'static str),
    /// The store has failed. It keeps the error itself.
    Failed,
}

/// What the rule needs to go on. Each is a call of the method of [`Source`] with that name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Need {
    /// The head.
    Head,
    /// A row, or that it does not exist.
    Row(Part),
    /// The rows of all holders.
    Holders,
    /// The first waiter at this place or behind it.
    WaiterFrom(u64),
    /// The number of waiters between two places.
    WaitersBetween(u64, u64),
    /// Whether a client can be reached.
    Reaches(ClientId),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(need) => write!(f, "{need:?} is not loaded"),
            Self::Damaged(row) => write!(f, "the {row} of the record is damaged"),
            Self::Failed => f.write_str("the store has failed"),
        }
    }
}

impl std::error::Error for Stop {}
