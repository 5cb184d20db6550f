//! Requests that no script decides: each is one command. A note is removed, a client is described.

use leasehold_core::{Op, Outcome, Removal};
use redis::{Cmd, Value, cmd};

use super::encode::keep_millis;
use super::keys::{annotation_key, description_key};
use crate::store::api::{Reply, Request};
use crate::store::redis::errors;

/// A command with a key, and with further arguments.
pub(crate) fn command(name: &str, key: &str, args: &[&str]) -> Cmd {
    let mut command = cmd(name);
    command.arg(key).arg(args);
    command
}

/// The key that a request is about.
fn key(request: &Request) -> String {
    match &request.op {
        Op::Remove(Removal::Note(slot)) => annotation_key(&request.key, slot),
        _ => description_key(&request.key),
    }
}

/// The command of a request, and its key.
pub(crate) fn encode(request: &Request) -> (String, Cmd) {
    let key = key(request);
    let command = match &request.op {
        Op::Describe { text, keep } => {
            command("SET", &key, &[text, "PX", &keep_millis(*keep).to_string()])
        }
        _ => command("DEL", &key, &[]),
    };
    (key, command)
}

/// The reply to a request.
pub(crate) fn decode(request: &Request, value: &Value) -> Reply {
    let outcome = match (&request.op, value) {
        (Op::Describe { .. }, Value::Okay) => Outcome::Stored,
        (Op::Remove(_), Value::Int(removed)) => Outcome::Removed(*removed > 0),
        (op, Value::ServerError(error)) => {
            let name = match op {
                Op::Describe { .. } => "SET",
                _ => "DEL",
            };
            return Reply::Rejected(errors::command_error(name, &key(request), error));
        }
        _ => return Reply::Unknown(errors::invalid_reply()),
    };
    Reply::Applied { outcome, now: None }
}
