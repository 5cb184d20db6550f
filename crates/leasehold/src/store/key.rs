//! Which record: a name in a tenant in a namespace.

use std::sync::Arc;

use leasehold_core::{Name, ScopeName};

/// The part of a store that belongs to one tenant of one namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Keyspace(Arc<(ScopeName, ScopeName)>);

impl Keyspace {
    /// The space of a tenant in a namespace.
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

    /// The key of a name in this space.
    #[must_use]
    pub fn key(&self, name: Name) -> Key {
        Key {
            space: self.clone(),
            name,
        }
    }
}

/// Which record of a store.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The space it is in.
    pub space: Keyspace,
    /// Its name there.
    pub name: Name,
}
