//! The offset of the clock of a server.

use std::time::{Duration, SystemTime};

use redis::cmd;

use crate::Result;
use crate::store::diagnose::{CLOCK_SAMPLES, ClockFacts};
use crate::store::redis::link::connection_manager::ConnectionManager;
use crate::store::redis::wire::reply;

/// Measures the offset. `None` if the server refuses `TIME`.
pub(super) async fn collect(manager: &ConnectionManager) -> Result<Option<ClockFacts>> {
    let mut best: Option<ClockFacts> = None;
    for _ in 0..CLOCK_SAMPLES {
        let sent = SystemTime::now();
        let reply = manager.query(Duration::ZERO, cmd("TIME")).await?;
        let received = SystemTime::now();
        let Some(server) = reply::time(&reply).and_then(|it| i64::try_from(it.as_micros()).ok())
        else {
            return Ok(None);
        };
        if let Some(sample) = ClockFacts::compare(sent, server, received) {
            best = Some(sample.or_better(best));
        }
    }
    Ok(best)
}
