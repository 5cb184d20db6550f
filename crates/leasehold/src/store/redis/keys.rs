//! The names of keys.

use std::fmt;

use leasehold_core::{ClientId, Name, ScopeName};

use crate::store::api::{Key, Keyspace};

/// The record of a name: `<namespace>:{<tenant>:<name>}`.
pub(super) struct RecordKey<'a>(pub(super) &'a Key);

/// The counter of a name: the same and `:token`.
pub(super) struct CounterKey<'a>(pub(super) &'a Key);

/// The queue of a name: the same and `:queue`.
pub(super) struct QueueKey<'a>(pub(super) &'a Key);

/// The description of a client: `<namespace>:client:<client id>`.
pub(super) struct ClientKey<'a>(pub(super) &'a Keyspace, pub(super) ClientId);

/// The admission record of one of many masters: `<namespace>:master`.
pub(super) struct AdmissionKey<'a>(pub(super) &'a ScopeName);

impl fmt::Display for AdmissionKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:master", self.0)
    }
}

/// A channel on which a client receives its grants: the same and, in a cluster, `:<node id>`.
///
/// A cluster broadcasts each message to all its nodes. A channel with a node id belongs to the connection to
/// this node, so that a client with a connection to each node receives a message once. The channel without it
/// belongs to all connections, and is used for messages that had no receiver on the other.
pub(super) struct Channel<'a> {
    pub(super) space: &'a Keyspace,
    pub(super) client: ClientId,
    /// The id of the node. Empty without a cluster, or for all nodes.
    pub(super) node: &'a str,
}

/// A pattern that matches every record of a keyspace, and no other key of ours.
///
/// No namespace, tenant or literal here contains a special character of patterns.
pub(super) struct RecordPattern<'a>(pub(super) &'a Keyspace);

/// The length of the key of a record without namespace, tenant and name.
pub(super) const RECORD_PUNCTUATION: usize = "::{}".len();

/// The suffix of the key of a counter.
pub(super) const COUNTER_SUFFIX: &str = ":token";

/// The suffix of the key of a queue.
pub(super) const QUEUE_SUFFIX: &str = ":queue";

/// The part between namespace and client id.
const CLIENT_INFIX: &str = ":client:";

/// The name in a key that matched [`RecordPattern`]. `None` if the key is not ours.
///
/// No name contains a brace, so a name that ends in `:token` is not mistaken for a counter.
pub(super) fn parse_record(space: &Keyspace, key: &[u8]) -> Option<Name> {
    let key = str::from_utf8(key).ok()?;
    let rest = key.strip_prefix(space.namespace().as_str())?;
    let rest = rest.strip_prefix(":{")?;
    let rest = rest.strip_prefix(space.tenant().as_str())?;
    let name = rest.strip_prefix(':')?.strip_suffix('}')?;
    Name::parse(name).ok()
}

/// The namespace of a channel of ours.
pub(super) fn namespace(channel: &str) -> &str {
    channel
        .split_once(CLIENT_INFIX)
        .map_or(channel, |(namespace, _)| namespace)
}

/// The namespace and the client of a channel. `None` if the channel is not ours.
pub(super) fn parse_channel<'a>(channel: &'a [u8], node: &str) -> Option<(&'a str, ClientId)> {
    let channel = str::from_utf8(channel).ok()?;
    let (namespace, client) = channel.split_once(CLIENT_INFIX)?;
    let client = match node {
        "" => client,
        node => client.strip_suffix(node)?.strip_suffix(':')?,
    };
    Some((namespace, client.parse().ok()?))
}

impl fmt::Display for RecordKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Key { space, name } = self.0;
        let (namespace, tenant) = (space.namespace(), space.tenant());
        write!(f, "{namespace}:{{{tenant}:{name}}}")
    }
}

impl fmt::Display for CounterKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{COUNTER_SUFFIX}", RecordKey(self.0))
    }
}

impl fmt::Display for QueueKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{QUEUE_SUFFIX}", RecordKey(self.0))
    }
}

impl fmt::Display for ClientKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{CLIENT_INFIX}{}", self.0.namespace(), self.1)
    }
}

impl fmt::Display for Channel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ClientKey(self.space, self.client).fmt(f)?;
        match self.node {
            "" => Ok(()),
            node => write!(f, ":{node}"),
        }
    }
}

impl fmt::Display for RecordPattern<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (namespace, tenant) = (self.0.namespace(), self.0.tenant());
        write!(f, "{namespace}:{{{tenant}:*}}")
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::ScopeName;

    use super::*;

    #[test]
    fn a_name_is_found_again_in_its_key() {
        let scope = |text| ScopeName::parse(text).unwrap();
        let space = Keyspace::new(scope("app"), scope("t"));
        for name in ["orders/42", "a:token", "token", ":", "昼 [a-z]*?\\"] {
            let key = space.key(Name::parse(name).unwrap());
            let record = RecordKey(&key).to_string();
            assert_eq!(
                parse_record(&space, record.as_bytes()),
                Some(key.name.clone())
            );
            assert_eq!(
                record.len(),
                "app".len() + 1 + name.len() + RECORD_PUNCTUATION
            );
            for other in [CounterKey(&key).to_string(), QueueKey(&key).to_string()] {
                assert_eq!(parse_record(&space, other.as_bytes()), None);
            }
        }
        for key in [
            "app:{t:}",
            "app:{t:a}b}",
            "app:{u:a}",
            "ap:{t:a}",
            "app:{t:a",
            "\u{0}",
        ] {
            assert_eq!(parse_record(&space, key.as_bytes()), None, "{key}");
        }
        assert_eq!(parse_record(&space, b"app:{t:\xff}"), None);
    }

    #[test]
    fn a_client_is_found_again_in_its_channel() {
        let scope = |text| ScopeName::parse(text).unwrap();
        let space = Keyspace::new(scope("app"), scope("t"));
        let client = ClientId::from_random([0xa5; 16]);
        for node in ["", "4f0c"] {
            let channel = Channel {
                space: &space,
                client,
                node,
            };
            let channel = channel.to_string();
            let of = |channel: &str| parse_channel(channel.as_bytes(), node).is_some();
            let parsed = parse_channel(channel.as_bytes(), node);
            assert_eq!(parsed, Some(("app", client)));
            assert_eq!(parse_channel(channel.as_bytes(), "4f0d"), None);
            assert!(!of(&format!("{channel}0")));
            assert!(!of(&channel.replace("client", "server")));
            assert!(!of(""));
        }
    }
}
