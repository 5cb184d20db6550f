//! The reports of a server on itself.

use redis::Value;

use super::{fields, send, words};
use crate::Result;
use crate::store::diagnose::{Fields, QueryResult};
use crate::store::redis::errors;
use crate::store::redis::link::connection_manager::ConnectionManager;
use crate::store::redis::wire::reply::{field, text};

/// The relevant settings. Each is queried by itself, as servers before 7.0 accept only one.
const SETTINGS: [&str; 12] = [
    "maxmemory",
    "maxmemory-policy",
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "aof-load-truncated",
    "save",
    "min-replicas-to-write",
    "min-replicas-max-lag",
    "cluster-node-timeout",
    "cluster-require-full-coverage",
    "tracking-table-max-keys",
];

/// `INFO`, `CONFIG GET`, and the version of the protocol.
pub(super) async fn collect(
    manager: &ConnectionManager,
) -> Result<(QueryResult<Fields>, QueryResult<Fields>, u8)> {
    let settings = SETTINGS.map(|setting| words(&["CONFIG", "GET", setting]));
    let commands = [words(&["HELLO"]), words(&["INFO"])];
    let replies = send(manager, commands.into_iter().chain(settings)).await?;
    let [hello, info, settings @ ..] = &replies[..] else {
        return Err(errors::invalid_reply().at_store(manager.target()));
    };
    Ok((parse_info(info), parse_settings(settings), protocol(hello)))
}

/// A server that does not know `HELLO` speaks version 2.
fn protocol(hello: &Value) -> u8 {
    match field(hello, "proto") {
        Some(Value::Int(3)) => 3,
        _ => 2,
    }
}

fn parse_info(reply: &Value) -> QueryResult<Fields> {
    match errors::refusal(reply) {
        Some(refusal) => Err(refusal.words),
        None => Ok(Fields::of_lines(&text(reply).unwrap_or_default())),
    }
}

fn parse_settings(replies: &[Value]) -> QueryResult<Fields> {
    let mut known = Fields::default();
    for reply in replies {
        if let Some(refusal) = errors::refusal(reply) {
            return Err(refusal.words);
        }
        known.0.extend(fields(reply).0);
    }
    Ok(known)
}
