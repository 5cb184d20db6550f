//! The offset of the clock of a server.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::cmd;

use crate::Result;
use crate::store::diagnose::ClockFacts;
use crate::store::redis::link::connection_manager::ConnectionManager;
use crate::store::redis::wire::reply;

/// The number of samples, of which the one with the shortest round trip counts.
const SAMPLES: u32 = 5;

/// Measures the offset. `None` if the server refuses `TIME`.
pub(super) async fn collect(manager: &ConnectionManager) -> Result<Option<ClockFacts>> {
    let mut best: Option<ClockFacts> = None;
    for _ in 0..SAMPLES {
        let sent = SystemTime::now();
        let reply = manager.query(Duration::ZERO, cmd("TIME")).await?;
        let received = SystemTime::now();
        let Some(server) = reply::time(&reply).and_then(|it| i64::try_from(it.as_micros()).ok())
        else {
            return Ok(None);
        };
        let Some(sample) = compare(since_epoch(sent), server, since_epoch(received)) else {
            // The local clock was set back meanwhile.
            continue;
        };
        if best.is_none_or(|best| sample.error < best.error) {
            best = Some(sample);
        }
    }
    Ok(best)
}

/// The offset of a time that was read at some moment between `sent` and `received`.
fn compare(sent: i64, server: i64, received: i64) -> Option<ClockFacts> {
    let error = (received - sent) / 2;
    (error >= 0).then_some(ClockFacts {
        ahead: server - (sent + error),
        error,
    })
}

fn since_epoch(time: SystemTime) -> i64 {
    let span = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_compared_with_the_middle_of_the_round_trip() {
        let facts = |ahead, error| Some(ClockFacts { ahead, error });
        assert_eq!(compare(1_000, 1_100, 1_200), facts(0, 100));
        assert_eq!(compare(1_000, 31_100, 1_200), facts(30_000, 100));
        assert_eq!(compare(31_000, 1_100, 31_200), facts(-30_000, 100));
        assert_eq!(compare(1_200, 1_100, 1_000), None);
    }
}
