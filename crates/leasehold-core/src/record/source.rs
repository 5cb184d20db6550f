//! The source from which the rule reads a record.

use super::rows::{Head, Holder, Note, Part, Row, Slot, Waiter};
use crate::id::{ClientId, LeaseId};

/// The record of one name, as a store has it before the operation.
///
/// Rows may have ended. A method fails if the part cannot be read, or is not loaded.
pub trait Source {
    /// Why a part is not known.
    type Error;

    /// The head, the default one if nothing is stored.
    fn head(&mut self) -> Result<Head, Self::Error>;

    /// A row, which is of the class of its part.
    fn row(&mut self, part: &Part) -> Result<Option<Row>, Self::Error>;

    /// All holders that are not in the head, in any order.
    fn holders(&mut self) -> Result<Vec<Holder>, Self::Error>;

    /// The first waiter at a place or behind it.
    fn waiter_from(&mut self, place: u64) -> Result<Option<Waiter>, Self::Error>;

    /// The number of waiters from place `from` on and before place `to`.
    fn waiters_between(&mut self, from: u64, to: u64) -> Result<u32, Self::Error>;

    /// Whether a client is alive: whether a notice would reach it. The reply is the same throughout one run.
    fn reaches(&mut self, client: ClientId) -> Result<bool, Self::Error>;

    /// A holder that is not in the head.
    fn holder(&mut self, lease: LeaseId) -> Result<Option<Holder>, Self::Error> {
        Ok(match self.row(&Part::Holder(lease))? {
            Some(Row::Holder(holder)) => Some(holder),
            _ => None,
        })
    }

    /// A waiter.
    fn waiter(&mut self, lease: LeaseId) -> Result<Option<Waiter>, Self::Error> {
        Ok(match self.row(&Part::Waiter(lease))? {
            Some(Row::Waiter(waiter)) => Some(waiter),
            _ => None,
        })
    }

    /// A note.
    fn note(&mut self, slot: &Slot) -> Result<Option<Note>, Self::Error> {
        Ok(match self.row(&Part::Note(slot.clone()))? {
            Some(Row::Note(note)) => Some(note),
            _ => None,
        })
    }
}
