//! What the rule and the readers need of the records.

use leasehold_core::ClientId;

use crate::store::api::{Key, Keyspace};

/// What must be loaded.
#[derive(Clone, Debug)]
pub(super) enum Need {
    /// A part of a record, with its head.
    Part(Key, Want),
    /// Whether a client of another process listens.
    Client(ClientId),
    /// Heads of a keyspace behind a name.
    Heads(Keyspace, String),
    /// Notes of a keyspace behind a name and an id.
    Completions(Keyspace, (String, String)),
}

/// A part of a record.
#[derive(Clone, Debug)]
pub(super) enum Want {
    /// Only the head.
    Head,
    /// A member.
    Member(u8, String),
    /// All members of a class.
    Class(u8),
    /// The first waiters from a place on, at most so many.
    Waiters(i64, usize),
    /// How many wait between two places.
    Count(i64, i64),
}
