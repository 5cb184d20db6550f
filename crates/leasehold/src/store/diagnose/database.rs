//! Facts about a PostgreSQL database.

use super::{ClockFacts, Fields};

/// The facts about a PostgreSQL database.
#[derive(Clone, Debug)]
pub(crate) struct DatabaseFacts {
    /// Its URL without a password.
    pub(crate) name: String,
    /// `user`, `database`, `in_recovery`, `connections`, and `may_create`: whether our user may create the schema.
    pub(crate) server: Fields,
    /// The relevant settings, in the units of `pg_settings`, and the `synchronous_commit` of the store.
    pub(crate) settings: Fields,
    /// The connected standbys.
    pub(crate) standbys: Vec<Standby>,
    pub(crate) clock: Option<ClockFacts>,
    pub(crate) link: Link,
    /// The version of the schema. `None`: there is no schema, or it cannot be read.
    pub(crate) schema: Option<String>,
    /// The tables of the schema.
    pub(crate) tables: Vec<TableFacts>,
    /// The rights that our user lacks, as they stand between `GRANT` and `TO`.
    pub(crate) missing_rights: Vec<String>,
    /// The facts that are missing, each with the reason.
    pub(crate) missing: Vec<String>,
}

/// What a connection keeps from one transaction to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// Its session.
    Session,
    /// Nothing: a pooler lends it a session for each transaction.
    Pooled {
        /// Whether the URL names another way to the server, for notifications.
        listens: bool,
    },
}

/// A standby, as the server reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standby {
    pub(crate) name: String,
    /// `streaming`, or a state in which it is behind. `None`: hidden from our user.
    pub(crate) state: Option<String>,
    /// Whether commits wait for it. `None`: hidden from our user.
    pub(crate) is_synchronous: Option<bool>,
}

/// A table of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableFacts {
    pub(crate) name: String,
    /// Whether a crash of the server keeps its rows.
    pub(crate) is_logged: bool,
    /// Whether autovacuum is disabled for it.
    pub(crate) is_unvacuumed: bool,
    /// Its estimated numbers of rows and of row versions that no transaction needs.
    pub(crate) rows: u64,
    pub(crate) dead_rows: u64,
    /// Its size in bytes.
    pub(crate) size: u64,
}
