//! Entry points of the fuzz targets: no input may break them.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold_core::{Acquire, ClientId, Name, Op, Outcome, Slot, Token, TokenCount, Ttl, Whom};
use redis::{PushInfo, Value};

use super::address::HostPort;
use super::address::deployment::Deployment;
use super::link::notifications::Notifications;
use super::read::{self, Unreadable};
use super::topology::slot_map::SlotsReply;
use super::wire::decode::{decode, latch_status};
use super::wire::keys::{
    annotation_key, client_key, parse_completion, parse_key, parse_record, record_key,
};
use super::wire::note;
use super::wire::reply;
use super::wire::script::Script;
use super::wire::slots;
use crate::store::api::{ClientInfo, Event, Listener, Parts, Reply, Request, fixture};
use crate::store::lock::lock;

/// A password that must not appear in any message.
const PASSWORD: &str = "kEnNwOrT";

/// Texts as URLs. The `Display` of an accepted URL is equivalent to it without its password, and no message
/// contains the password, whatever surrounds it.
pub fn address(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(Deployment::Single(mut address)) = Deployment::parse(&text) {
        address.password = None;
        let again = Deployment::parse(&address.to_string());
        assert_eq!(again.ok(), Some(Deployment::Single(address)));
    }
    if let Ok(deployment) = Deployment::parse(&text).map(|parsed| parsed.to_string()) {
        let again = Deployment::parse(&deployment).map(|parsed| parsed.to_string());
        assert_eq!(again.ok(), Some(deployment));
    }
    let (before, after) = text.split_once('|').unwrap_or(("", &text));
    for url in [
        format!("redis://{before}:{PASSWORD}{after}@host"),
        format!("redis+sentinel://user:{PASSWORD}{after}"),
        format!("rediss+cluster://user:{PASSWORD}{after}"),
        format!("redlock://user:{PASSWORD}{after}"),
    ] {
        let message = match Deployment::parse(&url) {
            Ok(deployment) => format!("{deployment} {deployment:?}"),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!message.contains(PASSWORD), "{message}");
    }
}

/// Bytes as the reply of a server to a batch of the script, to the queries of a listing, and to
/// `CLUSTER SLOTS`.
pub fn reply(data: &[u8]) {
    if let Some((choice, bytes)) = data.split_first()
        && let Ok(value) = redis::parse_redis_value(bytes)
    {
        check_reply(*choice, value);
    }
}

fn check_reply(choice: u8, value: Value) {
    let requests = requests(choice);
    for script in [
        Script::Mutex,
        Script::Shares,
        Script::Latch,
        Script::Renew,
        Script::RenewShares,
    ] {
        assert_eq!(decode(script, &[], &value).len(), 0);
        assert_eq!(decode(script, &requests, &value).len(), requests.len());
    }
    let decoded = decode(Script::Mutex, &requests, &value);
    for (request, decoded) in requests.iter().zip(decoded) {
        match decoded.reply {
            Some(Reply::Applied { outcome, .. }) => assert!(fits(&request.op, &outcome)),
            Some(Reply::Rejected(error) | Reply::Unknown(error)) => check_message(&error),
            None => {}
        }
    }
    let _ = reply::text(&value).and_then(|text| ClientInfo::from_text(&text));
    if let Some(annotation) = note::parse(&value) {
        let (lease, token) = (annotation.lease, annotation.token);
        let value = reply::text(&value).unwrap_or_default();
        // Between them is the number of the note.
        assert!(value.starts_with(&format!("{lease} {token} ")));
        assert!(value.ends_with(&format!(" {}", annotation.text)));
    }
    if let Some(status) = latch_status(&value) {
        let text = format!("latch {} {}", status.arrived, status.count);
        assert_eq!(value, Value::BulkString(text.into_bytes()));
        assert!((1..=status.count).contains(&status.arrived));
    }
    let (host, port) = (String::new(), 1);
    let map = SlotsReply::parse(&value, &HostPort { host, port }).unwrap_or_default();
    let mut masters = map.masters.iter();
    assert!(masters.all(|master| master.last < slots::SLOTS && master.addr.port != 0));
    if let Value::Array(values) = value {
        let kind = Slot::Value;
        for parts in [
            Parts::Lease,
            Parts::Waiters,
            Parts::Annotation(kind.clone()),
            Parts::State(kind),
            Parts::Latch,
        ] {
            if let Err(Unreadable::Foreign(error) | Unreadable::Refused(error)) =
                read::view(&requests[0].key, &parts, &values, None)
            {
                check_message(&error);
            }
        }
    }
}

/// Bytes as a push of the server, and as a message on the channel of a client. A valid one is an event of this
/// client and this keyspace; all others are ignored.
pub fn push(data: &[u8]) {
    let (space, client) = (fixture::space("app", "t"), ClientId::from_random([0; 16]));
    let log = Arc::new(EventLog::default());
    let listener = Arc::downgrade(&log) as Weak<dyn Listener>;
    let notifications = Notifications::default();
    notifications.clients.add(&space, client, listener);
    if let Ok(Value::Push { kind, data }) = redis::parse_redis_value(data) {
        notifications.handle_push(&PushInfo { kind, data });
    }
    let channel = client_key(&space, client);
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
pub(super) struct EventLog(Mutex<Vec<Event>>);

impl EventLog {
    pub(super) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *lock(&self.0))
    }
}

impl Listener for EventLog {
    fn notify(&self, event: Event) {
        lock(&self.0).push(event);
    }
}

/// A key and a name: only the keys of a name are parsed as those of that name.
pub fn key(data: &[u8]) {
    for namespace in ["app", "app@64"] {
        let space = fixture::space(namespace, "t");
        if let Some(name) = parse_record(&space, data) {
            let key = space.key(name);
            assert_eq!(record_key(&key).as_bytes(), data);
        }
        if let Some((name, kind)) = parse_completion(&space, data) {
            let key = space.key(name);
            let text = annotation_key(&key, &kind);
            assert_eq!(text.as_bytes(), data);
            assert_eq!(slots::of_text(&text), slots::of(&key));
            assert_eq!(parse_key(data).map(|(parsed, _)| parsed), Some(key));
        }
        if let Ok(name) = Name::parse(&String::from_utf8_lossy(data)) {
            let key = space.key(name.clone());
            let record = record_key(&key);
            assert_eq!(parse_record(&space, record.as_bytes()), Some(name));
            assert_eq!(slots::of_text(&record), slots::of(&key));
        }
    }
    if let Some((key, suffix)) = parse_key(data) {
        assert_eq!((record_key(&key) + suffix).as_bytes(), data);
    }
}

/// The bit of a choice that makes an acquisition wait.
const WAIT: u8 = 0x40;

/// One to four operations: two bits of `choice` are their number, the rest selects them.
fn requests(choice: u8) -> Vec<Request> {
    let (lease, ttl) = (fixture::lease(1), Ttl::MAX);
    let ops = [
        Op::Acquire(Acquire {
            wait: choice & WAIT != 0,
            ..Acquire::mutex(lease, ttl)
        }),
        Op::renew(lease, ttl),
        Op::release(lease),
        Op::Revoke(Whom::All),
        Op::SetToken {
            lease,
            first: Token::MAX,
            tokens: TokenCount::MIN,
        },
    ];
    let first = usize::from((choice & !WAIT) >> 2);
    let count = usize::from(choice & 3) + 1;
    let ops = (first..first + count).map(|at| ops[at % ops.len()].clone());
    ops.map(|op| Request::new(fixture::key("n"), op)).collect()
}

/// Whether an operation can have this outcome.
fn fits(op: &Op, outcome: &Outcome) -> bool {
    match (op, outcome) {
        (Op::Acquire { .. }, Outcome::Refused { time_left, .. }) => {
            time_left.is_none_or(|left| left <= Duration::from_secs(86_400))
        }
        (Op::Acquire { .. }, Outcome::Granted { .. } | Outcome::Exhausted)
        | (Op::Renew { .. }, Outcome::Kept)
        | (Op::Release { .. }, Outcome::Released)
        | (Op::SetToken { .. }, Outcome::Stored | Outcome::Outdated | Outcome::Exhausted)
        | (Op::Renew { .. } | Op::Release { .. } | Op::SetToken { .. }, Outcome::Lost(_))
        | (Op::Revoke(_), Outcome::Revoked(_))
        | (_, Outcome::Mismatch(_)) => true,
        _ => false,
    }
}

/// Checks that a message is one short line, for any text of a server.
fn check_message(error: &crate::Error) {
    let message = error.to_string();
    assert!(!message.contains(char::is_control), "{message:?}");
    assert!(message.len() < 2_000, "{message:?}");
}
