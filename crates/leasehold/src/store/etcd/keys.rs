//! The keys of a store.
//!
//! Namespaces and tenants contain no slash, and a name is the last part of its key, so nothing is escaped and the order of
//! keys is that of names.

use leasehold_core::ClientId;

use crate::store::api::{Key, Keyspace};

/// The keys below a prefix, which ends with a slash.
#[derive(Clone, Debug)]
pub(super) struct Keys(pub(super) String);

impl Keys {
    /// The prefix of the documents of a keyspace.
    pub(super) fn space(&self, space: &Keyspace) -> String {
        let (namespace, tenant) = (space.namespace().as_str(), space.tenant().as_str());
        format!("{}doc/{namespace}/{tenant}/", self.0)
    }

    pub(super) fn document(&self, key: &Key) -> String {
        self.space(&key.space) + key.name.as_str()
    }

    /// Exists while a client can be notified. Its value is a route: the process of the client, and the lease of that.
    pub(super) fn client(&self, client: ClientId) -> String {
        format!("{}client/{client}", self.0)
    }

    /// The prefix of the messages to the clients of a process.
    pub(super) fn inbox(&self, process: &str) -> String {
        format!("{}inbox/{process}/", self.0)
    }

    pub(super) fn mark(&self, mark: &str) -> String {
        format!("{}mark/{mark}", self.0)
    }
}
