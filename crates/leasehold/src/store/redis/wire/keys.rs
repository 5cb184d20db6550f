//! The names of keys.

use std::fmt::Write as _;

use leasehold_core::{ClientId, CompletionKey, Name, Namespace, ScopeName, Slot};

use super::slots;
use crate::store::api::{Key, Keyspace};

/// The usual bytes of a key. The buffer of a longer one grows.
pub(crate) const KEY_BYTES: usize = 48;

/// The record of a name: `<namespace>:{<tenant>:<name>}`. If the namespace has buckets, the name's bucket is the hash
/// tag: `<namespace>:{<bucket>}:{<tenant>:<name>}`.
pub(crate) fn record_key(Key { space, name }: &Key) -> String {
    let (namespace, tenant) = (space.namespace(), space.tenant());
    // With room for a suffix.
    let mut key = String::with_capacity(2 * KEY_BYTES);
    // Writing to a string does not fail.
    let _ = match slots::bucket(space, name) {
        Some(bucket) => write!(key, "{namespace}:{{{bucket}}}:{{{tenant}:{name}}}"),
        None => write!(key, "{namespace}:{{{tenant}:{name}}}"),
    };
    key
}

/// The counter of a name: the same and `:token`.
pub(crate) fn counter_key(key: &Key) -> String {
    record_key(key) + COUNTER_SUFFIX
}

/// The queue of a name: the same and `:queue`.
pub(crate) fn queue_key(key: &Key) -> String {
    record_key(key) + QUEUE_SUFFIX
}

/// An annotation of a name: the same and `:value`, `:completion` or `:completion:<key>`.
pub(crate) fn annotation_key(key: &Key, kind: &Slot) -> String {
    record_key(key) + &note_suffix(kind)
}

/// What the key of a note has behind that of the record.
pub(crate) fn note_suffix(slot: &Slot) -> String {
    match slot {
        Slot::Value => VALUE_SUFFIX.to_owned(),
        Slot::Period => COMPLETION_SUFFIX.to_owned(),
        Slot::Key(key) => format!("{COMPLETION_SUFFIX}:{key}"),
    }
}

/// The lease of a name that was revoked last: the same and `:revoked`.
pub(crate) fn revoked_key(key: &Key) -> String {
    record_key(key) + ":revoked"
}

/// The description of a client: `<namespace>:client:<client id>`.
pub(crate) fn client_key(space: &Keyspace, client: ClientId) -> String {
    format!("{}{CLIENT_INFIX}{client}", space.namespace())
}

/// The same for the key of the record of a client.
pub(crate) fn description_key(Key { space, name }: &Key) -> String {
    let client = name.as_str().trim_matches(['{', '}']);
    format!("{}{CLIENT_INFIX}{client}", space.namespace())
}

/// The admission record of one of many masters: `<namespace>:master`.
pub(crate) fn admission_key(namespace: &Namespace) -> String {
    format!("{namespace}:master")
}

/// A channel on which a client receives its grants: that of its description and, in a cluster, `:<node id>`. `node`
/// is empty without a cluster, or for all nodes.
///
/// A cluster broadcasts each message to all its nodes. A channel with a node id belongs to the connection to
/// this node, so that a client with a connection to each node receives a message once. The channel without it
/// belongs to all connections, and is used for messages that had no receiver on the other.
pub(crate) fn channel(space: &Keyspace, client: ClientId, node: &str) -> String {
    let channel = client_key(space, client);
    match node {
        "" => channel,
        node => format!("{channel}:{node}"),
    }
}

/// A pattern that matches every record of a keyspace, and no other key of ours.
///
/// No namespace, tenant or literal here contains a special character of patterns.
pub(crate) fn record_pattern(space: &Keyspace) -> String {
    let tag = match space.namespace().buckets() {
        Some(_) => "{*}:",
        None => "",
    };
    format!("{}:{tag}{{{}:*}}", space.namespace(), space.tenant())
}

/// A pattern that matches every completion of a keyspace.
pub(crate) fn completion_pattern(space: &Keyspace) -> String {
    format!("{}{COMPLETION_SUFFIX}*", record_pattern(space))
}

/// The suffix of the key of a counter.
pub(crate) const COUNTER_SUFFIX: &str = ":token";

/// The suffix of the key of a queue.
pub(crate) const QUEUE_SUFFIX: &str = ":queue";

/// The suffix of the key of a leader's value.
const VALUE_SUFFIX: &str = ":value";

/// The suffix of the key of a completion.
const COMPLETION_SUFFIX: &str = ":completion";

/// The part between namespace and client id.
const CLIENT_INFIX: &str = ":client:";

/// The name that has a key, and the suffix of its counter, its queue, an annotation or its revocation. A record has an
/// empty one. `None` if the key is not ours.
///
/// No name contains a brace, so a name that ends in `:token` is not mistaken for a counter. The key of a completion may
/// contain one.
pub(crate) fn parse_key(key: &[u8]) -> Option<(Key, &str)> {
    let key = str::from_utf8(key).ok()?;
    let (namespace, _) = key.split_once(':')?;
    let bucket = match namespace.contains('@') {
        true => key.find("}:{")? + 1,
        false => 0,
    };
    let end = bucket + key.get(bucket..)?.find('}')?;
    let (record, suffix) = key.split_at_checked(end + 1)?;
    let (_, name) = record.strip_suffix('}')?.rsplit_once('{')?;
    let (tenant, name) = name.split_once(':')?;
    let namespace = Namespace::parse(namespace).ok()?;
    let space = Keyspace::new(namespace, ScopeName::parse(tenant).ok()?);
    let key = space.key(Name::parse(name).ok()?);
    (record_key(&key) == record).then_some((key, suffix))
}

/// The name of which a key is the record. `None` if it is not a record of the keyspace.
pub(crate) fn parse_record(space: &Keyspace, key: &[u8]) -> Option<Name> {
    let (key, suffix) = parse_key(key)?;
    (key.space == *space && suffix.is_empty()).then_some(key.name)
}

/// The name and the kind of a completion. `None` if the key is not one of the keyspace.
pub(crate) fn parse_completion(space: &Keyspace, key: &[u8]) -> Option<(Name, Slot)> {
    let (key, suffix) = parse_key(key)?;
    let kind = match suffix.strip_prefix(COMPLETION_SUFFIX)? {
        "" => Slot::Period,
        rest => Slot::Key(CompletionKey::parse(rest.strip_prefix(':')?).ok()?),
    };
    (key.space == *space).then_some((key.name, kind))
}

/// The namespace of a channel of ours.
pub(crate) fn namespace(channel: &str) -> &str {
    channel
        .split_once(CLIENT_INFIX)
        .map_or(channel, |(namespace, _)| namespace)
}

/// The namespace and the client of a channel. `None` if the channel is not ours.
pub(crate) fn parse_channel<'a>(channel: &'a [u8], node: &str) -> Option<(&'a str, ClientId)> {
    let channel = str::from_utf8(channel).ok()?;
    let (namespace, client) = channel.split_once(CLIENT_INFIX)?;
    let client = match node {
        "" => client,
        node => client.strip_suffix(node)?.strip_suffix(':')?,
    };
    Some((namespace, client.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::store::api::fixture;

    fn parsed(namespace: &str, key: &str) -> Option<String> {
        let name = parse_record(&fixture::space(namespace, "t"), key.as_bytes())?;
        Some(name.as_str().to_owned())
    }

    /// The slots of `t:a` and of `t:a:token` are those of a server.
    #[test]
    fn the_key_of_a_record_names_its_bucket() {
        for (namespace, name, record) in [
            ("app", "a", "app:{t:a}"),
            ("app@64", "a", "app@64:{17}:{t:a}"),
            ("app@1", "a", "app@1:{0}:{t:a}"),
            ("app@16384", "a", "app@16384:{4625}:{t:a}"),
            ("app@64", "a:token", "app@64:{48}:{t:a:token}"),
        ] {
            let space = fixture::space(namespace, "t");
            let key = space.key(Name::parse(name).unwrap());
            assert_eq!(record_key(&key), record);
            assert_eq!(parsed(namespace, record).as_deref(), Some(name));
            assert_eq!(parsed(namespace, &queue_key(&key)), None);
            assert_eq!(parsed(namespace, &counter_key(&key)), None);
        }
    }

    #[test]
    fn the_page_lists_every_key_and_no_other() {
        let (key, client) = (fixture::key("a"), ClientId::from_random([7; 16]));
        let completion = Slot::Key(CompletionKey::parse("k").unwrap());
        let own = BTreeSet::from([
            record_key(&key),
            annotation_key(&key, &Slot::Value),
            annotation_key(&key, &Slot::Period),
            annotation_key(&key, &completion),
            counter_key(&key),
            queue_key(&key),
            revoked_key(&key),
            client_key(&key.space, client),
            admission_key(key.space.namespace()),
        ]);
        let page = include_str!("../../../../../../docs/redis.md")
            .replace("<namespace>", "app")
            .replace("<tenant>:<name>", "t:a")
            .replace("<key>", "k")
            .replace("<client id>", &client.to_string());
        let rows = page.lines().filter_map(|row| row.strip_prefix("| "));
        let cells = rows.filter_map(|row| row.split(" | ").next());
        let pieces = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
        let keys = pieces.map(|piece| match piece.starts_with(':') {
            true => record_key(&key) + piece,
            false => piece.to_owned(),
        });
        assert_eq!(keys.collect::<BTreeSet<_>>(), own);
    }
}
