//! Writes in one transaction, each nested for itself, and their outcomes. One alone is not nested, which costs less.
//!
//! The transaction of a write compares the version of its document and that the receivers of its messages listen. A message
//! is a key that is put under the lease of its receiver; its watch shows each put, so the next message overwrites it. No key
//! is put twice in a transaction, so each message to a client has a slot of its own there.

use std::collections::HashMap;

use leasehold_core::ClientId;

use super::cluster::OPERATIONS_MAX;
use super::document::{self, Stored, value};
use super::error::not_etcd;
use super::keys::Keys;
use super::messages::{
    Compare, Operation, Request, Transaction, TransactionReply, delete, put, range,
};
use super::routes::Route;
use crate::Result;
use crate::store::optimistic::documents::{Version, Write};

/// The messages of a write that travel with it. A server takes 128 operations and those nested in one together, by default.
const MESSAGES_MAX: usize = 60;

/// The bytes of a transaction. A server takes 1.5 MiB, by default.
const BYTES_MAX: usize = 1_000_000;

/// The bytes of the comparison, the put and the read that a message costs beside its text.
const MESSAGE_BYTES: usize = 300;

/// A write, and those of its messages that travel with it.
pub(super) struct Nested<'a> {
    /// The number of the write.
    pub(super) nth: usize,
    write: &'a Write,
    messages: &'a [(ClientId, String)],
}

/// The outcome of a write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done(Version),
    /// Another version is there.
    Conflict(Stored),
    /// A receiver has no route, or another one.
    Moved(ClientId, Option<Route>),
}

impl<'a> Nested<'a> {
    fn new((nth, write): (usize, &'a Write)) -> Self {
        let mut room = BYTES_MAX.saturating_sub(write.text.as_ref().map_or(0, String::len));
        let fits = |(_, message): &&(ClientId, String)| {
            let bytes = message.len() + MESSAGE_BYTES;
            let fits = bytes <= room;
            room = room.saturating_sub(bytes);
            fits
        };
        let messages = write.messages.iter().take(MESSAGES_MAX);
        let count = messages.take_while(fits).count();
        Self {
            nth,
            write,
            messages: &write.messages[..count],
        }
    }

    /// The messages that are left for afterwards.
    pub(super) fn later(&self) -> &'a [(ClientId, String)] {
        &self.write.messages[self.messages.len()..]
    }

    fn bytes(&self) -> usize {
        let text = self.write.text.as_ref().map_or(0, String::len);
        let messages = self.messages.iter();
        let messages = messages.map(|(_, message)| message.len() + MESSAGE_BYTES);
        text + messages.sum::<usize>()
    }
}

/// As few transactions as possible.
pub(super) fn parts<'a>(writes: impl Iterator<Item = (usize, &'a Write)>) -> Vec<Vec<Nested<'a>>> {
    let mut parts: Vec<Vec<Nested<'a>>> = Vec::new();
    let mut bytes = 0;
    for nested in writes.map(Nested::new) {
        bytes += nested.bytes();
        match parts.last_mut() {
            Some(part) if part.len() < OPERATIONS_MAX && bytes <= BYTES_MAX => part.push(nested),
            _ => {
                bytes = nested.bytes();
                parts.push(vec![nested]);
            }
        }
    }
    parts
}

/// The transaction of writes.
pub(super) fn request(
    keys: &Keys,
    routes: &HashMap<ClientId, Route>,
    mark: &str,
    part: &[Nested<'_>],
) -> Transaction {
    let mut slots = HashMap::new();
    let mut transactions = Vec::with_capacity(part.len());
    for nested in part {
        let write = nested.write;
        let key = keys.document(&write.key);
        // No document has a version that is not a number.
        let seen = write.seen.0.parse().unwrap_or(-1);
        let mut compare = vec![Compare::revision(&key, seen)];
        let mut success = vec![match &write.text {
            Some(text) => put(&key, &value(mark, text), 0),
            None => delete(&key),
        }];
        let mut failure = vec![range(&key)];
        for message in nested.messages {
            if let Some((listens, delivery)) = delivery(keys, routes, &mut slots, message) {
                compare.push(listens);
                success.push(delivery);
                failure.push(range(&keys.client(message.0)));
            }
        }
        transactions.push(Transaction {
            compare,
            success,
            failure,
        });
    }
    match transactions.len() {
        1 => transactions.remove(0),
        _ => {
            let nested = transactions.into_iter().map(Request::Transaction);
            Transaction::of(nested.map(Into::into).collect())
        }
    }
}

/// The transaction of messages, each for itself, at most [`OPERATIONS_MAX`].
pub(super) fn messages<'a>(
    keys: &Keys,
    routes: &HashMap<ClientId, Route>,
    messages: impl Iterator<Item = &'a (ClientId, String)>,
) -> Transaction {
    let mut slots = HashMap::new();
    let operations = messages.filter_map(|message| {
        let (listens, delivery) = delivery(keys, routes, &mut slots, message)?;
        let nested = Transaction {
            compare: vec![listens],
            ..Transaction::of(vec![delivery])
        };
        Some(Request::Transaction(nested).into())
    });
    Transaction::of(operations.collect())
}

/// That a client listens, and the put of a message to it.
fn delivery(
    keys: &Keys,
    routes: &HashMap<ClientId, Route>,
    slots: &mut HashMap<ClientId, u32>,
    (client, message): &(ClientId, String),
) -> Option<(Compare, Operation)> {
    let route = routes.get(client)?;
    let slot = slots.entry(*client).or_default();
    let key = format!("{}{client}/{slot}", keys.inbox(&route.process));
    *slot += 1;
    let listens = Compare::value(&keys.client(*client), &route.to_string());
    Some((listens, put(&key, message, route.lease)))
}

/// The outcome of the write that is at this place in a transaction of so many.
pub(super) fn outcome(
    reply: &TransactionReply,
    (at, count): (usize, usize),
    nested: &Nested<'_>,
    routes: &HashMap<ClientId, Route>,
) -> Result<Outcome> {
    let (write, messages) = (nested.write, nested.messages);
    let inner = match count {
        1 => reply,
        _ => reply.nested(at)?,
    };
    if inner.succeeded {
        let header = reply.header.as_ref().ok_or_else(not_etcd)?;
        let revision = write.text.as_ref().map_or(0, |_| header.revision);
        return Ok(Outcome::Done(document::version(revision)));
    }
    let stored = Stored::of(inner.found(0)?);
    if stored.version == write.seen {
        let route = |(client, _): &(ClientId, String)| Some((*client, routes.get(client)?));
        for (nth, (client, route)) in messages.iter().filter_map(route).enumerate() {
            let found = Route::of(inner.found(nth + 1)?);
            if found.as_ref() != Some(route) {
                return Ok(Outcome::Moved(client, found));
            }
        }
    }
    Ok(Outcome::Conflict(stored))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message as _;

    use super::*;
    use crate::ErrorKind;
    use crate::store::api::fixture::key;

    const CLIENT: ClientId = ClientId::from_random([7; 16]);

    fn write(name: &str, text: &str, messages: usize) -> Write {
        Write {
            key: key(name),
            seen: Version("5".into()),
            text: Some(text.into()),
            messages: (0..messages).map(|it| (CLIENT, it.to_string())).collect(),
        }
    }

    fn routes() -> HashMap<ClientId, Route> {
        HashMap::from([(CLIENT, Route::parse("p 9").unwrap())])
    }

    #[test]
    fn a_transaction_is_within_the_limits_of_a_server() {
        let large = "x".repeat(400_000);
        let mut writes: Vec<_> = (0..150).map(|it| write(&it.to_string(), "a", 0)).collect();
        writes.extend((0..3).map(|it| write(&format!("l{it}"), &large, 0)));
        writes.push(write("many", "a", 100));
        let parts = parts(writes.iter().enumerate());
        assert_eq!(
            parts.iter().map(Vec::len).collect::<Vec<_>>(),
            [64, 64, 24, 2]
        );
        let last = &parts[3][1];
        assert_eq!(
            (last.messages.len(), last.later().len()),
            (MESSAGES_MAX, 40)
        );
        let body = request(&Keys("l/".into()), &routes(), "1", &parts[3]);
        let Some(Request::Transaction(nested)) = &body.success[1].request else {
            panic!("{body:?}");
        };
        let key = |it: &Operation| match &it.request {
            Some(Request::Put(put)) => put.key.clone(),
            other => panic!("{other:?}"),
        };
        let keys: BTreeSet<_> = nested.success.iter().map(key).collect();
        assert_eq!(nested.success.len(), MESSAGES_MAX + 1);
        assert_eq!(keys.len(), MESSAGES_MAX + 1);
    }

    /// Each message costs more than its text.
    #[test]
    fn many_messages_are_within_the_limit_of_a_server() {
        let text = "x".repeat(15_000);
        let writes: Vec<_> = (0..64).map(|_| write("a", &text, 60)).collect();
        let route = Route {
            process: CLIENT.to_string(),
            lease: i64::MAX,
        };
        let routes = HashMap::from([(CLIENT, route)]);
        for part in parts(writes.iter().enumerate()) {
            let body = request(&Keys("leasehold/".into()), &routes, "1", &part);
            assert!(body.encoded_len() < 1_500_000, "{}", body.encoded_len());
        }
    }

    #[test]
    fn a_reply_without_the_nested_one_is_not_one_of_etcd() {
        let writes = [write("a", "t", 2)];
        let parts = parts(writes.iter().enumerate());
        let strange = TransactionReply::default();
        let error = outcome(&strange, (0, 2), &parts[0][0], &routes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    }
}
