//! Operations on what a name has beside its lock: arrivals at a latch, and the removal of a latch or of a note. And the
//! description of a client, which has a key of its own.
//!
//! Each is one command of its own, while the script of the rule applies those on locks.

use std::iter;

use leasehold_core::{Claim, Op, Outcome, Removal};
use redis::{Cmd, Value};

use super::codec::keep_millis;
use super::errors;
use super::keys::{annotation_key, description_key, record_key};
use super::latches;
use super::observers::ServerObservers;
use super::reader::{Reader, command};
use crate::store::api::{Reply, Request, Store};
use crate::{Error, ErrorKind, Result};

/// Whether the script of the rule applies an operation.
pub(super) const fn is_of_rule(op: &Op) -> bool {
    !matches!(op, Op::Arrive { .. } | Op::Remove(_) | Op::Describe { .. }) && !is_unknown(op)
}

/// Whether no script applies an operation.
const fn is_unknown(op: &Op) -> bool {
    matches!(op, Op::Acquire(request) if !matches!(request.claim, Claim::Mutex))
}

/// Applies a batch one by one, because one of its operations at least is not of the script of the rule. `check` makes
/// the error of a server that is no master any more.
pub(super) async fn apply_each(
    store: &impl Store,
    reader: &impl Reader,
    observers: &ServerObservers,
    check: impl Fn(Error) -> Error,
    batch: Vec<Request>,
) -> Vec<Reply> {
    let mut replies = Vec::with_capacity(batch.len());
    for request in batch {
        if is_of_rule(&request.op) {
            replies.extend(store.apply(vec![request]).await);
            continue;
        }
        let _own_change = observers.own_changes(iter::once(&request.key));
        let reply = apply(store, reader, &request).await;
        let named = |error| check(error).for_lock(&request.key.name).at_store(store);
        replies.push(reply.map_error(named));
    }
    replies
}

async fn apply(store: &impl Store, reader: &impl Reader, request: &Request) -> Reply {
    let Request { key, op, .. } = request;
    let (name, cmd) = match op {
        op if is_unknown(op) => {
            let message = "this store has no such operation";
            return Reply::Rejected(Error::new(ErrorKind::Unsupported, message));
        }
        Op::Arrive { id, count, keep } => {
            let arrival = Some((id, *count, *keep));
            (record_key(key).to_string(), latches::encode(key, arrival))
        }
        Op::Remove(Removal::Note(slot)) => command("DEL", annotation_key(key, slot).to_string()),
        Op::Describe { text, keep } => {
            let (name, mut set) = command("SET", description_key(key));
            set.arg(&**text)
                .arg("PX")
                .arg(keep_millis(*keep).to_string());
            (name, set)
        }
        _ => (record_key(key).to_string(), latches::encode(key, None)),
    };
    let mut reply = fetch(reader, &name, &cmd).await;
    if reply.as_ref().is_ok_and(latches::is_waited_for) {
        // The first living waiter is granted the lock, and without one the name is free.
        let serve = Request::new(key.clone(), Op::Serve);
        store.apply(vec![serve]).await;
        reply = fetch(reader, &name, &cmd).await;
    }
    let reply = match reply {
        Ok(reply) => reply,
        Err(error) => return Reply::Unknown(error),
    };
    let outcome = match op {
        Op::Arrive { count, .. } => latches::arrived(*count, &reply),
        Op::Remove(Removal::Note(_)) => removed(&name, &reply),
        Op::Describe { .. } => described(&name, &reply),
        _ => latches::removed(&reply),
    };
    match outcome {
        Ok(outcome) => Reply::Applied { outcome, now: None },
        Err(error) => Reply::Rejected(error),
    }
}

async fn fetch(reader: &impl Reader, name: &str, cmd: &Cmd) -> Result<Value> {
    let fetched = reader.fetch(vec![(name.to_owned(), cmd.clone())]).await;
    fetched.map(|replies| replies.into_iter().next().unwrap_or(Value::Nil))
}

/// The outcome of the removal of a note, or of any other value that its key has had.
fn removed(name: &str, reply: &Value) -> Result<Outcome> {
    match reply {
        Value::Int(removed) => Ok(Outcome::Removed(*removed > 0)),
        Value::ServerError(error) => Err(errors::command_error("DEL", name, error)),
        _ => Err(errors::invalid_reply()),
    }
}

/// The outcome of the description of a client.
fn described(name: &str, reply: &Value) -> Result<Outcome> {
    match reply {
        Value::Okay => Ok(Outcome::Stored),
        Value::ServerError(error) => Err(errors::command_error("SET", name, error)),
        _ => Err(errors::invalid_reply()),
    }
}
