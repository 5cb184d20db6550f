//! Keys of records: a name in a keyspace, which is a tenant in a namespace.

use std::sync::Arc;

use leasehold_core::{Name, ScopeName};

/// The part of a store that belongs to one tenant of one namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Keyspace(Arc<(ScopeName, ScopeName)>);

impl Keyspace {
    /// The keyspace of a tenant in a namespace.
    #[must_use]
    pub fn new(namespace: ScopeName, tenant: ScopeName) -> Self {
        Self(Arc::new((namespace, tenant)))
    }

    /// The namespace: separates programs and teams.
    #[must_use]
    pub fn namespace(&self) -> &ScopeName {
        &self.0.0
    }

    /// The tenant: separates customers of one program.
    #[must_use]
    pub fn tenant(&self) -> &ScopeName {
        &self.0.1
    }

    /// The key of a name in this keyspace.
    #[must_use]
    pub fn key(&self, name: Name) -> Key {
        Key {
            space: self.clone(),
            name,
        }
    }
}

/// The key of a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Key {
    /// Its keyspace.
    pub space: Keyspace,
    /// Its name there.
    pub name: Name,
}

/// A part of a store that can fail by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shard(pub u32);
