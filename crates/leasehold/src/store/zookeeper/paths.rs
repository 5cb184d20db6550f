//! The paths of nodes.
//!
//! A name is one node, so what a node's name may not contain is percent-encoded.

use leasehold_core::{ClientId, Name};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use crate::store::api::{Key, Keyspace};
use crate::store::optimistic::documents;

const ESCAPED: &AsciiSet = &CONTROLS.add(b'/').add(b'%').add(b'.');

/// The nodes below a path, which begins with a slash and ends without one.
#[derive(Clone, Debug)]
pub(super) struct Paths(pub(super) String);

impl Paths {
    /// The parent of the documents of a keyspace.
    pub(super) fn space(&self, space: &Keyspace) -> String {
        let part = |part| utf8_percent_encode(part, ESCAPED);
        let (namespace, tenant) = (space.namespace().as_str(), space.tenant().as_str());
        format!("{}/doc/{}/{}", self.0, part(namespace), part(tenant))
    }

    pub(super) fn document(&self, key: &Key) -> String {
        let name = utf8_percent_encode(key.name.as_str(), ESCAPED);
        format!("{}/{name}", self.space(&key.space))
    }

    /// Exists while a client can be notified.
    pub(super) fn client(&self, client: ClientId) -> String {
        format!("{}/{client}", self.clients())
    }

    pub(super) fn clients(&self) -> String {
        format!("{}/client", self.0)
    }

    pub(super) fn inbox(&self, client: ClientId) -> String {
        format!("{}/{client}", self.inboxes())
    }

    pub(super) fn inboxes(&self) -> String {
        format!("{}/inbox", self.0)
    }

    /// The client of an inbox.
    pub(super) fn client_of(&self, path: &str) -> Option<ClientId> {
        let client = path.strip_prefix(&self.inboxes())?.strip_prefix('/')?;
        client.parse().ok()
    }
}

/// The name of a node below that of a keyspace.
pub(super) fn name(node: &str) -> Option<Name> {
    documents::name(&percent_decode_str(node).decode_utf8().ok()?)
}

/// The ancestors of a node, the highest first.
pub(super) fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/')
        .filter(|(at, _)| *at > 0)
        .map(|(at, _)| &path[..at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::api::fixture::key;

    #[test]
    fn each_name_is_one_node() {
        let paths = Paths("/leasehold".into());
        for given in ["a", "a/b", "..", "ä%", "x y"] {
            let path = paths.document(&key(given));
            let (_, node) = path.rsplit_once('/').unwrap();
            assert_eq!(name(node).unwrap().as_str(), given);
            assert!(node.is_ascii() && !node.starts_with('.'));
        }
        let above: Vec<_> = ancestors("/a/b/c").collect();
        assert_eq!(above, ["/a", "/a/b"]);
    }
}
