//! The messages between processes: events for one client.
//!
//! A message is a version and then the events. An event is its kind, its key as three strings with their
//! lengths, and its numbers; all numbers are little-endian. An unreadable message is ignored: waiters have
//! timers, and observers read again from time to time.

use leasehold_core::{
    ClientId, Grant, LeaseId, Name, Namespace, Notice, ScopeName, StoreTime, Token, Ttl,
};

use crate::store::api::{Event, EventScope, Key, Keyspace};

/// The maximum length of a message.
pub(super) const BYTES_MAX: usize = 32 * 1024;

/// The number of messages that fit into a socket, by the default of Linux of 208 KiB.
const MESSAGES_MAX: usize = 5;

const VERSION: u8 = 1;
const GRANTED: u8 = 1;
const NEXT: u8 = 2;
const REVOKED: u8 = 3;
const INTERRUPTED: u8 = 4;
const CHANGED: u8 = 5;

/// Appends an event to the last message, or to a new one if that is full. Too many events become two bytes,
/// which say that events were missed.
pub(super) fn write(messages: &mut Vec<Vec<u8>>, event: &Event) {
    const OVERFLOW: [u8; 2] = [VERSION, INTERRUPTED];
    let Some(event) = encode(event) else { return };
    let full = messages.len() == MESSAGES_MAX;
    match messages.last_mut() {
        Some(message) if *message == OVERFLOW => {}
        Some(message) if message.len() + event.len() <= BYTES_MAX => message.extend(event),
        _ if full => *messages = vec![OVERFLOW.to_vec()],
        _ => messages.push([vec![VERSION], event].concat()),
    }
}

/// The events of a message to a client, as far as it is readable.
pub(super) fn read(message: &[u8], client: ClientId) -> Vec<Event> {
    let mut events = Vec::new();
    let Some((&VERSION, mut rest)) = message.split_first() else {
        tracing::debug!("a message of an unknown version");
        return events;
    };
    while !rest.is_empty() {
        let Some(event) = decode(&mut rest, client) else {
            tracing::debug!("a message that is unreadable");
            break;
        };
        events.push(event);
    }
    events
}

fn encode(event: &Event) -> Option<Vec<u8>> {
    let (kind, key, numbers) = match event {
        Event::Notice(key, Notice::Granted(grant)) => (
            GRANTED,
            key,
            vec![
                grant.lease.number,
                grant.ttl.as_millis(),
                grant.first.get(),
                grant.now.as_micros(),
            ],
        ),
        Event::Notice(key, Notice::Next { lease, ttl }) => {
            (NEXT, key, vec![lease.number, ttl.as_millis()])
        }
        Event::Notice(key, Notice::Revoked { lease }) => (REVOKED, key, vec![lease.number]),
        Event::Changed(key) => (CHANGED, key, Vec::new()),
        Event::Interrupted(_) | Event::Moved(_) => return None,
    };
    let mut bytes = vec![kind];
    let space = &key.space;
    for part in [
        space.namespace().as_str(),
        space.tenant().as_str(),
        key.name.as_str(),
    ] {
        bytes.extend(u16::try_from(part.len()).ok()?.to_le_bytes());
        bytes.extend(part.as_bytes());
    }
    bytes.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
    Some(bytes)
}

fn decode(rest: &mut &[u8], client: ClientId) -> Option<Event> {
    let [kind] = take(rest)?;
    if kind == INTERRUPTED {
        return Some(Event::Interrupted(EventScope::Store));
    }
    let namespace = Namespace::parse(text(rest)?).ok()?;
    let tenant = ScopeName::parse(text(rest)?).ok()?;
    let name = Name::parse(text(rest)?).ok()?;
    let key: Key = Keyspace::new(namespace, tenant).key(name);
    let lease = |number| LeaseId { client, number };
    match kind {
        GRANTED => {
            let grant = Grant {
                lease: lease(number(rest)?),
                ttl: Ttl::from_millis(number(rest)?)?,
                first: Token::new(number(rest)?)?,
                now: StoreTime::from_micros(number(rest)?),
            };
            Some(Event::Notice(key, Notice::Granted(grant)))
        }
        NEXT => {
            let (lease, ttl) = (lease(number(rest)?), Ttl::from_millis(number(rest)?)?);
            Some(Event::Notice(key, Notice::Next { lease, ttl }))
        }
        REVOKED => {
            let lease = lease(number(rest)?);
            Some(Event::Notice(key, Notice::Revoked { lease }))
        }
        CHANGED => Some(Event::Changed(key)),
        _ => None,
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*bytes)
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(u64::from_le_bytes)
}

fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let length = u16::from_le_bytes(take(rest)?);
    let (bytes, after) = rest.split_at_checked(length.into())?;
    *rest = after;
    str::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::api::fixture::{key, lease};

    const CLIENT: ClientId = ClientId::from_random([0; 16]);

    fn revoked(name: &str, number: u64) -> Event {
        let lease = lease(number);
        Event::Notice(key(name), Notice::Revoked { lease })
    }

    /// No input causes a panic, and the events before the damage are read.
    #[test]
    fn a_message_is_read_as_far_as_it_is_undamaged() {
        let (ttl, now) = (Ttl::USER_MIN, StoreTime::from_micros(u64::MAX));
        let (lease, first) = (lease(u64::MAX), Token::MAX);
        let grant = Grant {
            lease,
            ttl,
            first,
            now,
        };
        let next = Notice::Next { lease, ttl };
        let events = [
            Event::Notice(key("a"), Notice::Granted(grant)),
            Event::Notice(key(&"ü".repeat(256)), next),
            Event::Changed(key("e:f*")),
            revoked("c d", 7),
        ];
        let mut messages = Vec::new();
        events.iter().for_each(|event| write(&mut messages, event));
        let [message] = &messages[..] else {
            panic!("{messages:?}")
        };
        assert_eq!(read(message, CLIENT), events);
        for length in 0..message.len() {
            let found = read(&message[..length], CLIENT);
            assert!(found.len() < events.len() && found == events[..found.len()]);
        }
        for _ in 0..20_000 {
            let mut message = message.clone();
            let at = fastrand::usize(..message.len());
            message[at] = fastrand::u8(..);
            read(&message, CLIENT);
        }
    }

    #[test]
    fn many_events_take_several_messages_in_their_order_and_too_many_none() {
        let event = |number: u32| revoked(&format!("{number:0500}"), number.into());
        let mut messages = Vec::new();
        for number in 0..200 {
            write(&mut messages, &event(number));
        }
        assert!(messages.len() > 2);
        assert!(messages.iter().all(|message| message.len() <= BYTES_MAX));
        let found = messages.iter().flat_map(|message| read(message, CLIENT));
        assert!(found.eq((0..200).map(event)));
        for number in 0..1_000 {
            write(&mut messages, &event(number));
        }
        let found = messages.iter().flat_map(|message| read(message, CLIENT));
        assert!(found.eq([Event::Interrupted(EventScope::Store)]));
    }
}
