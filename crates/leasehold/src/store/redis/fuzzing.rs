//! What of this store must survive any input.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::{ClientId, LeaseId, Name, Op, Outcome, ScopeName, Token, TokenCount, Ttl};
use redis::{PushInfo, Value};

use super::address::Address;
use super::inspect::Unreadable;
use super::keys::{ClientKey, RecordKey, parse_record};
use super::notifications::Notifications;
use super::{codec, inspect};
use crate::store::api::{Event, Key, Keyspace, Listener, Reply, Request};

/// A password that is in no message.
const PASSWORD: &str = "kEnNwOrT";

/// Texts as URLs. What is accepted is shown as a URL that means the same without its password, and
/// nobody is told of the password, whatever stands around it.
pub fn address(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(mut address) = Address::parse(&text) {
        address.password = None;
        assert_eq!(Address::parse(&address.to_string()).ok(), Some(address));
    }
    let (before, after) = text.split_once('|').unwrap_or(("", &text));
    let told = match Address::parse(&format!("redis://{before}:{PASSWORD}{after}@host")) {
        Ok(address) => format!("{address} {address:?}"),
        Err(error) => format!("{error} {error:?}"),
    };
    assert!(!told.contains(PASSWORD), "{told}");
}

/// The bytes of a server as its answer to a batch of the script, and to the questions of a listing.
pub fn answer(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else {
        return;
    };
    let Ok(value) = redis::parse_redis_value(bytes) else {
        return;
    };
    let requests = requests(*choice);
    let replies = codec::decode(&requests, value.clone());
    assert_eq!(replies.len(), requests.len());
    for (request, reply) in requests.iter().zip(replies) {
        match reply {
            Reply::Applied { outcome, .. } => assert!(fits(&request.op, &outcome)),
            Reply::Rejected(error) | Reply::Unknown(error) => check_message(&error),
        }
    }
    let _ = inspect::client_info(&value);
    if let Value::Array(answers) = value
        && let Err(Unreadable::Foreign(error) | Unreadable::Refused(error)) =
            inspect::entry(&requests[0].key, &answers)
    {
        check_message(&error);
    }
}

/// The bytes of a server as a push of its own accord, and as a message on a client's channel. What
/// makes sense is subscriptions of this client and this space, the rest nothing.
pub fn push(data: &[u8]) {
    let (space, client) = (space(), ClientId::from_random([0; 16]));
    let ear = Arc::new(Ear::default());
    let listener = Arc::downgrade(&ear) as Weak<dyn Listener>;
    let notifications = Notifications::default();
    notifications.add(&space, client, listener);
    if let Ok(Value::Push { kind, data }) = redis::parse_redis_value(data) {
        notifications.hear(&PushInfo { kind, data });
    }
    let channel = ClientKey(&space, client).to_string();
    notifications.hear_message(channel.as_bytes(), data);
    if let Some(at) = data.iter().position(|byte| *byte == b'|') {
        notifications.hear_message(&data[..at], &data[at + 1..]);
    }
    for event in ear.take() {
        match event {
            Event::Notice(key, notice) => {
                assert_eq!(key.space, space);
                assert_eq!(notice.lease().client, client);
            }
            Event::Changed(key) => assert_eq!(key.space, space),
            Event::Interrupted(_) | Event::Moved(_) => {}
        }
    }
}

/// Notes what it hears.
#[derive(Debug, Default)]
struct Ear(Mutex<Vec<Event>>);

impl Ear {
    fn take(&self) -> Vec<Event> {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut events)
    }
}

impl Listener for Ear {
    fn notify(&self, event: Event) {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        events.push(event);
    }
}

/// A key and a name: only the key of a name is taken for it.
pub fn key(data: &[u8]) {
    let space = space();
    if let Some(name) = parse_record(&space, data) {
        let key = space.key(name);
        assert_eq!(RecordKey(&key).to_string().as_bytes(), data);
    }
    if let Ok(name) = Name::parse(&String::from_utf8_lossy(data)) {
        let key = space.key(name.clone());
        let record = RecordKey(&key).to_string();
        assert_eq!(parse_record(&space, record.as_bytes()), Some(name));
    }
}

/// The bit of a choice by which an acquire is one that waits.
const WAIT: u8 = 0x40;

/// One to four operations: two bits of `choice` say how many, the rest which.
fn requests(choice: u8) -> Vec<Request> {
    let name = Name::parse("n").unwrap_or_else(|_| unreachable!());
    let key: Key = space().key(name);
    let lease = LeaseId {
        client: ClientId::from_random([0; 16]),
        number: 1,
    };
    let ttl = Ttl::MAX;
    let ops = [
        Op::Acquire {
            lease,
            count: NonZeroU32::MIN,
            ttl,
            tokens: TokenCount::MIN,
            wait: choice & WAIT != 0,
        },
        Op::Renew { lease, ttl },
        Op::Release {
            lease,
            count: u32::from(choice & 1),
            ttl,
        },
        Op::Revoke,
        Op::Enter {
            lease,
            count: NonZeroU32::MIN,
            ttl,
        },
        Op::SetToken {
            lease,
            first: Token::MAX,
            tokens: TokenCount::MIN,
        },
    ];
    let first = usize::from(choice >> 2);
    let count = usize::from(choice & 3) + 1;
    let ops = (first..first + count).map(|at| ops[at % ops.len()]);
    ops.map(|op| Request::new(key.clone(), op)).collect()
}

fn space() -> Keyspace {
    let scope = |text| ScopeName::parse(text).unwrap_or_else(|_| unreachable!());
    Keyspace::new(scope("app"), scope("t"))
}

/// Whether an operation can end that way.
fn fits(op: &Op, outcome: &Outcome) -> bool {
    match (op, outcome) {
        (Op::Acquire { .. }, Outcome::Refused { left, .. }) => *left <= Duration::from_secs(86_400),
        (Op::Release { count, .. }, Outcome::Released { count: told }) => count == told,
        (Op::Acquire { .. }, Outcome::Granted { .. } | Outcome::Exhausted)
        | (Op::Renew { .. }, Outcome::Renewed)
        | (Op::Enter { .. }, Outcome::Entered { .. })
        | (Op::SetToken { .. }, Outcome::Fenced | Outcome::Outdated | Outcome::Exhausted)
        | (
            Op::Renew { .. } | Op::Release { .. } | Op::Enter { .. } | Op::SetToken { .. },
            Outcome::Lost(_),
        )
        | (Op::Revoke, Outcome::Revoked { .. }) => true,
        _ => false,
    }
}

/// The words of a server may be anything; a message stays one short line.
fn check_message(error: &crate::Error) {
    let message = error.to_string();
    assert!(!message.contains(char::is_control), "{message:?}");
    assert!(message.len() < 2_000, "{message:?}");
}
