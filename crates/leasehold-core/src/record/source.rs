//! The source from which the rule reads a record.

use super::rows::{Head, Holder, Note, Slot, Waiter};
use crate::id::{ClientId, LeaseId};
use crate::latch::ArrivalId;

/// The record of one name, as a store has it before the operation.
///
/// Rows may have ended. A method fails if the part cannot be read, or is not loaded.
pub trait Source {
    /// Why a part is not known.
    type Error;

    /// The head, the default one if nothing is stored.
    fn head(&mut self) -> Result<Head, Self::Error>;

    /// A holder that is not in the head.
    fn holder(&mut self, lease: LeaseId) -> Result<Option<Holder>, Self::Error>;

    /// All holders that are not in the head, in any order.
    fn holders(&mut self) -> Result<Vec<Holder>, Self::Error>;

    /// A waiter.
    fn waiter(&mut self, lease: LeaseId) -> Result<Option<Waiter>, Self::Error>;

    /// The first waiter at a place or behind it.
    fn waiter_from(&mut self, place: u64) -> Result<Option<Waiter>, Self::Error>;

    /// The number of waiters from place `from` on and before place `to`.
    fn waiters_between(&mut self, from: u64, to: u64) -> Result<u32, Self::Error>;

    /// Whether an id has arrived at the latch.
    fn has_arrived(&mut self, id: &ArrivalId) -> Result<bool, Self::Error>;

    /// A note.
    fn note(&mut self, slot: &Slot) -> Result<Option<Note>, Self::Error>;

    /// Whether a client is alive: whether a notice would reach it. The reply is the same throughout one run.
    fn reaches(&mut self, client: ClientId) -> Result<bool, Self::Error>;
}
