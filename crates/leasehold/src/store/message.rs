//! The messages between processes: events for one client.
//!
//! A message is a line with its version, and a line of words for each event: its key, its kind, and what belongs to that.
//! An unreadable message is ignored: waiters have timers, and observers read again from time to time.

use std::str::{FromStr, Split};

use leasehold_core::escape::Extent;
use leasehold_core::record::Run;
use leasehold_core::{
    Annotation, ClientId, Grant, LeaseId, Name, Namespace, Notice, ScopeName, StoreTime, Token, Ttl,
};

use crate::store::api::{Event, EventScope, Key, Keyspace};

/// The number of messages of one transaction to a client. Five of 32 KiB fit into a socket, by the default of Linux of 208 KiB.
const MESSAGES_MAX: usize = 5;

const VERSION: &str = "5\n";

/// The message that events were missed.
const OVERFLOW: &str = "5\ninterrupted\n";

/// Appends an event to the last message, or to a new one if that has no room within `bytes_max`. Too many events become the
/// message that events were missed.
pub(super) fn write(messages: &mut Vec<String>, event: &Event, bytes_max: usize) {
    let Some(line) = line(event) else { return };
    let is_full = messages.len() == MESSAGES_MAX;
    match messages.last_mut() {
        Some(message) if message == OVERFLOW => {}
        Some(message) if message.len() + line.len() <= bytes_max => message.push_str(&line),
        _ if is_full || VERSION.len() + line.len() > bytes_max => {
            *messages = vec![OVERFLOW.to_owned()];
        }
        _ => messages.push(format!("{VERSION}{line}")),
    }
}

/// The events of a message to a client, as far as it is readable.
pub(super) fn read(message: &[u8], client: ClientId) -> Vec<Event> {
    let message = str::from_utf8(message).ok();
    let Some(lines) = message.and_then(|message| message.strip_prefix(VERSION)) else {
        tracing::debug!("a message of an unknown version");
        return Vec::new();
    };
    let events = lines.split_inclusive('\n').map_while(|line| {
        let event = event(line.strip_suffix('\n')?, client);
        if event.is_none() {
            tracing::debug!("a message that is unreadable");
        }
        event
    });
    events.collect()
}

fn line(event: &Event) -> Option<String> {
    let (key, words) = match event {
        Event::Notice(key, notice) => (key, notice_words(notice)),
        Event::Changed(key) => (key, "changed".to_owned()),
        Event::Interrupted(_) | Event::Moved(_) => return None,
    };
    let [namespace, tenant] = [key.space.namespace().as_str(), key.space.tenant().as_str()];
    let key = [namespace, tenant, key.name.as_str()].map(escaped);
    Some(format!("{} {words}\n", key.join(" ")))
}

fn notice_words(notice: &Notice) -> String {
    let number = notice.lease().number;
    match notice {
        Notice::Granted(grant) => {
            let (ttl, now) = (grant.ttl.as_millis(), grant.now.as_micros());
            let run = grant.run.as_ref().map_or_else(String::new, run_words);
            let numbered = match (grant.number, grant.floor) {
                (Some(number), Some(floor)) => format!("{number} {floor}"),
                _ => "- -".to_owned(),
            };
            format!(
                "granted {number} {ttl} {} {now} {numbered}{run}",
                grant.first
            )
        }
        Notice::Next { ttl, .. } => format!("next {number} {}", ttl.as_millis()),
        Notice::Revoked { .. } => format!("revoked {number}"),
        Notice::Complete { note, .. } => format!("complete {number}{}", note_words(note)),
    }
}

fn run_words(run: &Run) -> String {
    let last = run.last.as_ref().map_or_else(String::new, note_words);
    format!(" {}{last}", run.requested_at.as_micros())
}

fn note_words(note: &Annotation) -> String {
    format!(" {} {} {}", note.lease, note.token, escaped(&note.text))
}

fn escaped(text: &str) -> String {
    let mut word = String::with_capacity(text.len());
    Extent::Word.escape(text, &mut word);
    word
}

fn event(line: &str, client: ClientId) -> Option<Event> {
    if line == "interrupted" {
        return Some(Event::Interrupted(EventScope::Store));
    }
    let mut fields = Fields(line.split(' '));
    let namespace = Namespace::parse(&fields.text()?).ok()?;
    let tenant = ScopeName::parse(&fields.text()?).ok()?;
    let name = Name::parse(&fields.text()?).ok()?;
    let key: Key = Keyspace::new(namespace, tenant).key(name);
    let event = match fields.0.next()? {
        "changed" => Event::Changed(key),
        kind => Event::Notice(key, fields.notice(kind, client)?),
    };
    fields.0.next().is_none().then_some(event)
}

/// The words of a line that are not read yet.
struct Fields<'a>(Split<'a, char>);

impl Fields<'_> {
    fn notice(&mut self, kind: &str, client: ClientId) -> Option<Notice> {
        let number = self.next()?;
        let lease = LeaseId { client, number };
        Some(match kind {
            "granted" => {
                let ttl = Ttl::from_millis(self.next()?)?;
                let first = Token::new(self.next()?)?;
                let now = StoreTime::from_micros(self.next()?);
                let numbered = self.numbered()?;
                Notice::Granted(Grant {
                    lease,
                    ttl,
                    first,
                    number: numbered.map(|(number, _)| number),
                    floor: numbered.map(|(_, floor)| floor),
                    now,
                    run: self.run()?,
                })
            }
            "next" => {
                let ttl = Ttl::from_millis(self.next()?)?;
                Notice::Next { lease, ttl }
            }
            "revoked" => Notice::Revoked { lease },
            "complete" => {
                let note = self.note()??;
                Notice::Complete { lease, note }
            }
            _ => return None,
        })
    }

    /// The number and the floor of a grant. `Some(None)`: it has none.
    fn numbered(&mut self) -> Option<Option<(u32, Token)>> {
        match (self.0.next()?, self.0.next()?) {
            ("-", "-") => Some(None),
            (number, floor) => {
                let floor = Token::new(floor.parse().ok()?)?;
                Some(Some((number.parse().ok()?, floor)))
            }
        }
    }

    /// `Some(None)`: the grant is for no run.
    fn run(&mut self) -> Option<Option<Run>> {
        let Some(requested_at) = self.0.next() else {
            return Some(None);
        };
        let requested_at = StoreTime::from_micros(requested_at.parse().ok()?);
        let last = self.note()?;
        Some(Some(Run { requested_at, last }))
    }

    /// `Some(None)`: there is none.
    fn note(&mut self) -> Option<Option<Annotation>> {
        let Some(lease) = self.0.next() else {
            return Some(None);
        };
        Some(Some(Annotation {
            lease: lease.parse().ok()?,
            token: Token::new(self.next()?)?,
            text: self.text()?.into(),
        }))
    }

    fn text(&mut self) -> Option<String> {
        Extent::Word.unescape(self.0.next()?).map(Into::into)
    }

    fn next<T: FromStr>(&mut self) -> Option<T> {
        self.0.next()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::api::fixture::{key, lease};

    const BYTES_MAX: usize = 32 * 1024;
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
            let numbered = run.is_none().then_some(3);
            let grant = Grant {
                lease,
                ttl,
                first,
                number: numbered,
                floor: numbered.map(|_| first),
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
        events
            .iter()
            .for_each(|event| write(&mut messages, event, BYTES_MAX));
        let [message] = &messages[..] else {
            panic!("{messages:?}")
        };
        let message = message.as_bytes();
        assert_eq!(read(message, CLIENT), events);
        for length in 0..message.len() {
            let found = read(&message[..length], CLIENT);
            assert!(found.len() < events.len() && found == events[..found.len()]);
        }
        for _ in 0..20_000 {
            let mut message = message.to_vec();
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
            write(&mut messages, &event(number), BYTES_MAX);
        }
        assert!(messages.len() > 2);
        assert!(messages.iter().all(|message| message.len() <= BYTES_MAX));
        let found = messages
            .iter()
            .flat_map(|message| read(message.as_bytes(), CLIENT));
        assert!(found.eq((0..200).map(event)));
        for number in 0..1_000 {
            write(&mut messages, &event(number), BYTES_MAX);
        }
        let found = messages
            .iter()
            .flat_map(|message| read(message.as_bytes(), CLIENT));
        assert!(found.eq([Event::Interrupted(EventScope::Store)]));
    }
}
