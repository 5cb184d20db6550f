//! A place for documents with versions: what a store implements that has no clock, but compares and swaps.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use leasehold_core::{ClientId, Name};

use crate::store::api::{Capabilities, Key, Keyspace};
use crate::store::backend::ListenChange;
use crate::store::records::ListPart;
use crate::{Error, Result};

/// A place for documents with versions.
pub trait Documents: fmt::Display + fmt::Debug + Send + Sync + 'static {
    /// What it can do at this moment. `wakeup` is `Grants` while this process can be notified, otherwise `Nothing`.
    fn capabilities(&self) -> Capabilities;

    /// Reads documents, in the order of their keys, each from one moment, not older than this call.
    fn read(&self, keys: Vec<Key>) -> impl Future<Output = Result<Vec<Document>>> + Send;

    /// Replaces documents, each for itself. One reply for each, in their order. At most one write per key.
    fn replace(&self, writes: Vec<Write>) -> impl Future<Output = Vec<Replaced>> + Send;

    /// The names of a keyspace that have documents, behind a name, in the order of their names.
    fn names(
        &self,
        space: &Keyspace,
        after: &str,
    ) -> impl Future<Output = Result<ListPart<Name>>> + Send;

    /// Which of these clients of other processes can be notified.
    fn alive(
        &self,
        clients: Vec<ClientId>,
    ) -> impl Future<Output = Result<HashSet<ClientId>>> + Send;

    /// The version of a document that does not exist, if all of them have the same. Then one that is not known is written
    /// without being read.
    fn absent(&self) -> Option<Version> {
        None
    }

    /// Which documents are removed once nobody has needed them for long.
    fn garbage(&self) -> Garbage {
        Garbage::Nothing
    }

    /// A client of this process began or ended to listen. Does no I/O.
    fn listen(&self, change: ListenChange) {
        let _ = change;
    }
}

/// Which documents a store can remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Garbage {
    /// None.
    #[default]
    Nothing,
    /// The descriptions of clients. Versions of another document in the same place may repeat, so that a late write of an
    /// earlier one replaces it. That does no harm to a description, because only its client writes it.
    Clients,
    /// All, because no two documents ever have the same version. That for "absent" repeats: a late write which creates a
    /// document replaces none.
    Everything,
}

impl Garbage {
    /// Whether the document of a name is removed.
    pub(super) fn has(self, name: &Name) -> bool {
        match self {
            Self::Nothing => false,
            Self::Clients => name.client().is_some(),
            Self::Everything => true,
        }
    }
}

/// A document as it was read.
#[derive(Clone, Debug)]
pub struct Document {
    pub version: Version,
    /// `None`: there is none.
    pub text: Option<String>,
    /// It was written at least so long before this reply was sent. Zero: unknown.
    pub age: Duration,
}

/// A version in the words of its store, that for "absent" included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(pub String);

/// The replacement of a document.
#[derive(Clone, Debug)]
pub struct Write {
    pub key: Key,
    /// The version that is replaced.
    pub seen: Version,
    /// `None`: it is removed.
    pub text: Option<String>,
    /// For clients of other processes, delivered if the write is applied.
    pub messages: Vec<(ClientId, String)>,
}

/// The reply to a write.
#[derive(Clone, Debug)]
pub enum Replaced {
    /// The version that was written.
    Done(Version),
    /// Another version is there; the document, if the store replied with it.
    Conflict(Option<Document>),
    /// Nothing was written: this receiver is gone.
    Unreachable(ClientId),
    /// Certainly not applied.
    Rejected(Error),
    /// It may have been applied, or may still be.
    Unknown(Error),
}

/// The name that a document is stored under: of a lock, or of the record of a client.
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
pub(in crate::store) fn name(text: &str) -> Option<Name> {
    let client = text
        .strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'));
    match client {
        Some(client) => client.parse().ok().map(Name::of_client),
        None => Name::parse(text).ok(),
    }
}
