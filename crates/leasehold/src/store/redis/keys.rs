//! The names of keys.

use std::fmt::{self, Display, Formatter};

use leasehold_core::{ClientId, Name, ScopeName};

use crate::store::api::{Key, Keyspace};

/// The record of a name: `<namespace>:{<tenant>:<name>}`.
pub(super) fn record_key(Key { space, name }: &Key) -> impl Display {
    let (namespace, tenant) = (space.namespace(), space.tenant());
    Written(move |f: &mut Formatter<'_>| write!(f, "{namespace}:{{{tenant}:{name}}}"))
}

/// The counter of a name: the same and `:token`.
pub(super) fn counter_key(key: &Key) -> impl Display {
    Written(move |f: &mut Formatter<'_>| write!(f, "{}{COUNTER_SUFFIX}", record_key(key)))
}

/// The queue of a name: the same and `:queue`.
#[cfg(any(test, feature = "doctor"))]
pub(super) fn queue_key(key: &Key) -> impl Display {
    Written(move |f: &mut Formatter<'_>| write!(f, "{}{QUEUE_SUFFIX}", record_key(key)))
}

/// The description of a client: `<namespace>:client:<client id>`.
pub(super) fn client_key(space: &Keyspace, client: ClientId) -> impl Display {
    Written(move |f: &mut Formatter<'_>| write!(f, "{}{CLIENT_INFIX}{client}", space.namespace()))
}

/// The admission record of one of many masters: `<namespace>:master`.
pub(super) fn admission_key(namespace: &ScopeName) -> impl Display {
    Written(move |f: &mut Formatter<'_>| write!(f, "{namespace}:master"))
}

/// A channel on which a client receives its grants: that of its description and, in a cluster, `:<node id>`. `node`
/// is empty without a cluster, or for all nodes.
///
/// A cluster broadcasts each message to all its nodes. A channel with a node id belongs to the connection to
/// this node, so that a client with a connection to each node receives a message once. The channel without it
/// belongs to all connections, and is used for messages that had no receiver on the other.
pub(super) fn channel(space: &Keyspace, client: ClientId, node: &str) -> String {
    let channel = client_key(space, client);
    match node {
        "" => channel.to_string(),
        node => format!("{channel}:{node}"),
    }
}

/// A pattern that matches every record of a keyspace, and no other key of ours.
///
/// No namespace, tenant or literal here contains a special character of patterns.
pub(super) fn record_pattern(space: &Keyspace) -> String {
    format!("{}:{{{}:*}}", space.namespace(), space.tenant())
}

/// Displays what a function writes.
struct Written<F>(F);

impl<F: Fn(&mut Formatter<'_>) -> fmt::Result> Display for Written<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0(f)
    }
}

/// The length of the key of a record without namespace, tenant and name.
pub(super) const RECORD_PUNCTUATION: usize = "::{}".len();

/// The suffix of the key of a counter.
pub(super) const COUNTER_SUFFIX: &str = ":token";

/// The suffix of the key of a queue.
pub(super) const QUEUE_SUFFIX: &str = ":queue";

/// The part between namespace and client id.
const CLIENT_INFIX: &str = ":client:";

/// The name in a key that matched [`record_pattern`]. `None` if the key is not ours.
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
