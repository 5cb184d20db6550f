//! Keys of records: a name in a keyspace, which is a tenant in a namespace.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use leasehold_core::{Name, Namespace, ScopeName};

/// The part of a store that belongs to one tenant of one namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Keyspace(Arc<(Namespace, ScopeName)>);

impl Keyspace {
    /// The keyspace of a tenant in a namespace.
    #[must_use]
    pub fn new(namespace: Namespace, tenant: ScopeName) -> Self {
        Self(Arc::new((namespace, tenant)))
    }

    /// The namespace: separates programs and teams.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Key {
    /// Its keyspace.
    pub space: Keyspace,
    /// Its name there.
    pub name: Name,
}

impl Hash for Key {
    /// Without the namespace, which is nearly always the same, and without separators.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.space.tenant().as_str().as_bytes());
        state.write(self.name.as_str().as_bytes());
    }
}

/// A part of a store that can fail by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shard(pub u32);

/// Keys and leases for tests.
#[cfg(any(test, all(feature = "__fuzz", feature = "redis")))]
pub(crate) mod fixture {
    #[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
    use leasehold_core::{ClientId, LeaseId};
    use leasehold_core::{Name, Namespace, ScopeName};

    use super::{Key, Keyspace};

    pub(crate) fn space(namespace: &str, tenant: &str) -> Keyspace {
        let parsed = Namespace::parse(namespace)
            .ok()
            .zip(ScopeName::parse(tenant).ok());
        let (namespace, tenant) = parsed.unwrap_or_else(|| unreachable!("{namespace} {tenant}"));
        Keyspace::new(namespace, tenant)
    }

    /// A key of the tenant `t` in the namespace `app`.
    pub(crate) fn key(name: &str) -> Key {
        space("app", "t").key(Name::parse(name).unwrap_or_else(|_| unreachable!("{name}")))
    }

    #[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
    pub(crate) fn lease(number: u64) -> LeaseId {
        let client = ClientId::from_random([0; 16]);
        LeaseId { client, number }
    }
}
