//! What a store implements that has a clock and transactions. [`RuleStore`](super::rule_store::RuleStore) does the rest.

use std::fmt;

use leasehold_core::ClientId;

use super::api::{Capabilities, Page, Reply};
use super::query::RunningQuery;
use super::work::Work;
use crate::Result;

/// A place for records, with a clock and transactions.
///
/// Its `Display` is its URL without a password.
pub trait Backend: fmt::Display + fmt::Debug + Send + Sync + 'static {
    /// What it can do at this moment.
    fn capabilities(&self) -> Capabilities;

    /// Runs work in one transaction, in which nobody else changes its records. Several works may share a transaction, but
    /// a work is never split. After the commit, [`Work::finish`] returns the replies.
    ///
    /// # Errors
    ///
    /// If there is no reply: the work may have been applied, or may still be.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not be applied, now or later. If it is, its notices are sent.
    fn transact(&self, work: Work) -> impl Future<Output = Result<Vec<Reply>>> + Send;

    /// Reads the steps of a query, each from one state of the records.
    ///
    /// # Errors
    ///
    /// If the records cannot be read.
    fn read(&self, query: RunningQuery) -> impl Future<Output = Result<Page>> + Send;

    /// A client of this process began or ended to listen, so other processes must reach it, or need not any longer. Does
    /// no I/O.
    fn listen(&self, change: ListenChange) {
        let _ = change;
    }
}

/// A change of the clients of this process that listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenChange {
    /// A client listens.
    Began(ClientId),
    /// It no longer does.
    Ended(ClientId),
}
