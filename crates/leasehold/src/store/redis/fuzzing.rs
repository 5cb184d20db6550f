//! Entry points of the fuzz targets: no input may break them.

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

/// A password that must not appear in any message.
const PASSWORD: &str = "kEnNwOrT";

/// Texts as URLs. The `Display` of an accepted URL is equivalent to it without its password, and no message
/// contains the password, whatever surrounds it.
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

/// Bytes as the answer of a server to a batch of the script, and to the queries of a listing.
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

/// Bytes as a push of the server, and as a message on the channel of a client. A valid one is an event of this
/// client and this keyspace; all others are ignored.
pub fn push(data: &[u8]) {
    let (space, client) = (space(), ClientId::from_random([0; 16]));
    let log = Arc::new(EventLog::default());
    let listener = Arc::downgrade(&log) as Weak<dyn Listener>;
    let notifications = Notifications::default();
    notifications.add(&space, client, listener);
    if let Ok(Value::Push { kind, data }) = redis::parse_redis_value(data) {
        notifications.handle_push(&PushInfo { kind, data });
    }
    let channel = ClientKey(&space, client).to_string();
    notifications.handle_message(channel.as_bytes(), data);
    if let Some(at) = data.iter().position(|byte| *byte == b'|') {
        notifications.handle_message(&data[..at], &data[at + 1..]);
    }
    for event in log.take() {
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

/// Records events.
#[derive(Debug, Default)]
struct EventLog(Mutex<Vec<Event>>);

impl EventLog {
    fn take(&self) -> Vec<Event> {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut events)
    }
}

impl Listener for EventLog {
    fn notify(&self, event: Event) {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        events.push(event);
    }
}

/// A key and a name: only the key of a name is parsed as that name.
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

/// The bit of a choice that makes an acquisition wait.
const WAIT: u8 = 0x40;

/// One to four operations: two bits of `choice` are their number, the rest selects them.
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

/// Whether an operation can have this outcome.
fn fits(op: &Op, outcome: &Outcome) -> bool {
    match (op, outcome) {
        (
            Op::Acquire { .. },
            Outcome::Refused {
                time_left: left, ..
            },
        ) => *left <= Duration::from_secs(86_400),
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

/// Checks that a message is one short line, for any text of a server.
fn check_message(error: &crate::Error) {
    let message = error.to_string();
    assert!(!message.contains(char::is_control), "{message:?}");
    assert!(message.len() < 2_000, "{message:?}");
}
