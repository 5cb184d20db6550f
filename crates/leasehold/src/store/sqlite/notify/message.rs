//! The messages between processes: events for one client.
//!
//! A message is a version and then the events. An event is its kind, its key as three strings with their
//! lengths, its numbers, and a completion if there is one; all numbers are little-endian. An unreadable message is
//! ignored: waiters have timers, and observers read again from time to time.

use leasehold_core::record::Run;
use leasehold_core::{
    Annotation, ClientId, Grant, LeaseId, Name, Namespace, Notice, ScopeName, StoreTime, Token, Ttl,
};

use crate::store::api::{Event, EventScope, Key, Keyspace};

/// The maximum length of a message.
pub(super) const BYTES_MAX: usize = 32 * 1024;

/// The number of messages that fit into a socket, by the default of Linux of 208 KiB.
const MESSAGES_MAX: usize = 5;

const VERSION: u8 = 3;
const GRANTED: u8 = 1;
const NEXT: u8 = 2;
const REVOKED: u8 = 3;
const INTERRUPTED: u8 = 4;
const CHANGED: u8 = 5;
const COMPLETE: u8 = 6;

/// The runs of a grant.
const NO_RUN: u64 = 0;
const FIRST_RUN: u64 = 1;
const LATER_RUN: u64 = 2;

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
        Event::Notice(key, notice) => {
            let (kind, mut numbers) = notice_numbers(notice);
            numbers.insert(0, notice.lease().number);
            (kind, key, numbers)
        }
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
        put_text(&mut bytes, part)?;
    }
    bytes.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
    let completion = match event {
        Event::Notice(_, Notice::Complete { note, .. }) => Some(note),
        Event::Notice(_, Notice::Granted(grant)) => {
            grant.run.as_ref().and_then(|run| run.last.as_ref())
        }
        _ => None,
    };
    if let Some(Annotation { lease, token, text }) = completion {
        put_text(&mut bytes, &format!("{lease} {token} {text}"))?;
    }
    Some(bytes)
}

/// The kind of a notice, and its numbers behind that of its lease.
fn notice_numbers(notice: &Notice) -> (u8, Vec<u64>) {
    match notice {
        Notice::Granted(grant) => {
            let numbers = [
                grant.ttl.as_millis(),
                grant.first.get(),
                grant.now.as_micros(),
            ];
            (GRANTED, [&numbers[..], &run_numbers(&grant.run)].concat())
        }
        Notice::Next { ttl, .. } => (NEXT, vec![ttl.as_millis()]),
        Notice::Revoked { .. } => (REVOKED, Vec::new()),
        Notice::Complete { .. } => (COMPLETE, Vec::new()),
    }
}

fn run_numbers(run: &Option<Run>) -> Vec<u64> {
    let Some(Run { requested_at, last }) = run else {
        return vec![NO_RUN];
    };
    let kind = last.as_ref().map_or(FIRST_RUN, |_| LATER_RUN);
    vec![kind, requested_at.as_micros()]
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
    if kind == CHANGED {
        return Some(Event::Changed(key));
    }
    let number = number(rest)?;
    let notice = decode_notice(kind, LeaseId { client, number }, rest)?;
    Some(Event::Notice(key, notice))
}

fn decode_notice(kind: u8, lease: LeaseId, rest: &mut &[u8]) -> Option<Notice> {
    Some(match kind {
        GRANTED => Notice::Granted(Grant {
            lease,
            ttl: Ttl::from_millis(number(rest)?)?,
            first: Token::new(number(rest)?)?,
            now: time(rest)?,
            run: decode_run(rest)?,
        }),
        NEXT => {
            let ttl = Ttl::from_millis(number(rest)?)?;
            Notice::Next { lease, ttl }
        }
        REVOKED => Notice::Revoked { lease },
        COMPLETE => {
            let note = completion(rest)?;
            Notice::Complete { lease, note }
        }
        _ => return None,
    })
}

/// `Some(None)`: the grant is for no run.
fn decode_run(rest: &mut &[u8]) -> Option<Option<Run>> {
    let kind = number(rest)?;
    if kind == NO_RUN {
        return Some(None);
    }
    let requested_at = time(rest)?;
    let last = match kind {
        FIRST_RUN => None,
        LATER_RUN => Some(completion(rest)?),
        _ => return None,
    };
    Some(Some(Run { requested_at, last }))
}

fn completion(rest: &mut &[u8]) -> Option<Annotation> {
    let mut words = text(rest)?.splitn(3, ' ');
    Some(Annotation {
        lease: words.next()?.parse().ok()?,
        token: Token::new(words.next()?.parse().ok()?)?,
        text: words.next()?.into(),
    })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*bytes)
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(u64::from_le_bytes)
}

fn time(rest: &mut &[u8]) -> Option<StoreTime> {
    number(rest).map(StoreTime::from_micros)
}

fn put_text(bytes: &mut Vec<u8>, text: &str) -> Option<()> {
    bytes.extend(u16::try_from(text.len()).ok()?.to_le_bytes());
    bytes.extend(text.as_bytes());
    Some(())
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
        let note = || Annotation {
            lease,
            token: first,
            text: "100 % of\nit".into(),
        };
        let granted = |last: Option<Option<Annotation>>| {
            let requested_at = now;
            let run = last.map(|last| Run { requested_at, last });
            let grant = Grant {
                lease,
                ttl,
                first,
                now,
                run,
            };
            Event::Notice(key("a"), Notice::Granted(grant))
        };
        let next = Notice::Next { lease, ttl };
        let events = [
            granted(None),
            granted(Some(None)),
            granted(Some(Some(note()))),
            Event::Notice(
                key("a"),
                Notice::Complete {
                    lease,
                    note: note(),
                },
            ),
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
