//! The reports of a server on itself.

use std::time::{Duration, SystemTime};

use redis::{Value, cmd};

use super::{fields, permitted, send, words};
use crate::Result;
use crate::store::diagnose::{CLOCK_SAMPLES, ClockFacts, Fields, QueryResult};
use crate::store::redis::errors;
use crate::store::redis::link::connection_manager::ConnectionManager;
use crate::store::redis::wire::reply::{field, text, time};

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
    let info = permitted(info).map(|info| Fields::of_lines(&text(info).unwrap_or_default()));
    let mut config = Fields::default();
    let read: QueryResult<()> = settings.iter().try_for_each(|reply| {
        config.0.extend(fields(permitted(reply)?).0);
        Ok(())
    });
    // A server that does not know `HELLO` speaks version 2.
    let protocol = match field(hello, "proto") {
        Some(Value::Int(3)) => 3,
        _ => 2,
    };
    Ok((info, read.map(|()| config), protocol))
}

/// Measures the offset of the clock. `None` if the server refuses `TIME`.
pub(super) async fn clock(manager: &ConnectionManager) -> Result<Option<ClockFacts>> {
    let mut best: Option<ClockFacts> = None;
    for _ in 0..CLOCK_SAMPLES {
        let sent = SystemTime::now();
        let reply = manager.query(Duration::ZERO, cmd("TIME")).await?;
        let received = SystemTime::now();
        let Some(server) = time(&reply).and_then(|it| i64::try_from(it.as_micros()).ok()) else {
            return Ok(None);
        };
        if let Some(sample) = ClockFacts::compare(sent, server, received) {
            best = Some(sample.or_better(best));
        }
    }
    Ok(best)
}
