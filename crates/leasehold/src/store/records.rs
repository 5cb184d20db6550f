//! The records of a store in one transaction: what the rule and the readers need of them.

use std::convert::Infallible;

use leasehold_core::record::stored::RowsSource;
use leasehold_core::record::{Changes, Head, Note, Source};
use leasehold_core::{ClientId, Environment, LeaseId, Name, Notice, Op, Rows, Slot};

use super::api::{Key, Keyspace};
use crate::Error;

/// The records of a store at one moment.
pub trait Records {
    /// Why they cannot be read or written.
    type Error;

    /// The time at which the rule runs for a record. It stays the same throughout a transaction: all its requests were sent
    /// before.
    fn environment(&self, key: &Key) -> Environment;

    /// The record of a name. `reaches` returns whether a client of this process is alive, and `None` for a client of
    /// another process, of which only the store knows.
    fn record<'a, F>(
        &'a mut self,
        key: &'a Key,
        reaches: F,
    ) -> impl Record<Error = Self::Error> + 'a
    where
        F: FnMut(ClientId) -> Option<bool> + 'a;

    /// The heads of a keyspace, or the next ones behind a name in the order of their names.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    fn heads(
        &mut self,
        space: &Keyspace,
        after: &str,
    ) -> Result<ListPart<(Name, Head)>, Self::Error>;

    /// The notes of a keyspace that have not ended, except values, or the next ones behind a name and the
    /// [id](Slot::id) of a slot, in this order.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    fn completions(
        &mut self,
        space: &Keyspace,
        after: (&str, &str),
    ) -> Result<ListPart<(Name, Slot, Note)>, Self::Error>;

    /// The error of a damaged record, which affects no other one.
    ///
    /// # Errors
    ///
    /// Any other error, which affects the transaction.
    fn damage(error: Self::Error) -> Result<Error, Self::Error> {
        Err(error)
    }
}

/// A part of a list. A list of one part may have any order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPart<T> {
    /// The entries.
    pub entries: Vec<T>,
    /// Whether it is the last part.
    pub is_last: bool,
}

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "object-store"))]
impl<T> ListPart<T> {
    /// A part that was limited to so many entries. One with fewer is the last.
    pub(super) fn limited(max: usize, entries: Vec<T>) -> Self {
        Self {
            is_last: entries.len() < max,
            entries,
        }
    }
}

impl<T> FromIterator<T> for ListPart<T> {
    /// The only part.
    fn from_iter<I: IntoIterator<Item = T>>(entries: I) -> Self {
        Self {
            entries: entries.into_iter().collect(),
            is_last: true,
        }
    }
}

/// The record of a name.
pub trait Record: Source {
    /// The first leases that wait, at most so many, for people: one that cannot be read hides no other.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    fn waiting(
        &mut self,
        environment: &Environment,
        max: usize,
    ) -> Result<Vec<LeaseId>, Self::Error>;

    /// Stores the changes of an operation.
    ///
    /// # Errors
    ///
    /// If the record cannot be written.
    fn store(&mut self, changes: Changes) -> Result<(), Self::Error>;

    /// Repairs a record for an operation of an operator that failed with this error.
    ///
    /// # Errors
    ///
    /// The error, if the operation does not repair what is damaged.
    fn repair(&mut self, op: &Op, error: Self::Error) -> Result<(), Self::Error> {
        let _ = op;
        Err(error)
    }
}

/// A record in memory.
impl<F: FnMut(ClientId) -> bool> Record for RowsSource<&mut Rows, F> {
    fn waiting(
        &mut self,
        environment: &Environment,
        max: usize,
    ) -> Result<Vec<LeaseId>, Infallible> {
        let waiters = self.rows_mut().waiters(environment).take(max);
        Ok(waiters.map(|waiter| waiter.lease).collect())
    }

    fn store(&mut self, changes: Changes) -> Result<(), Infallible> {
        self.rows_mut().store(changes);
        Ok(())
    }
}

/// A transaction that changes records. What it notifies is sent after its commit.
///
/// The methods are for a store that several processes share. The clients and observers of this process are notified
/// without them.
pub trait Transaction: Records {
    /// Whether other processes can notify the clients of this one. Otherwise no client joins a queue: one that cannot be
    /// notified must not delay those behind it.
    fn can_wait(&self) -> bool {
        true
    }

    /// A client of this process waits: others must reach it from the commit on.
    fn waits(&mut self) {}

    /// Adds a notice to a client of another process.
    fn notify(&mut self, key: &Key, notice: Notice) {
        let _ = (key, notice);
    }

    /// Adds the change of a name, for its observers in other processes.
    ///
    /// # Errors
    ///
    /// If the store does not know them.
    fn changed(&mut self, key: &Key) -> Result<(), Self::Error> {
        let _ = key;
        Ok(())
    }
}
