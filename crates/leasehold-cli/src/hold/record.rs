//! The lines on stdout.

use std::time::{Duration, SystemTime};

use leasehold::clock::{BootClock, Clock as _};
use leasehold::{Cause, Guard, State};
use serde::Serialize;

use crate::{json, output};

/// The lock when it is granted, or at a change of its state.
pub(super) fn record(
    store: &str,
    guard: &Guard,
    slot: Option<u32>,
    changed: Option<State>,
) -> impl Serialize {
    let state = changed.unwrap_or_else(|| guard.state());
    let (event, cause, until) = match state {
        State::Held { until } => ("held", None, Some(until)),
        State::Jeopardy { cause, until } => ("jeopardy", Some(cause), Some(until)),
        State::Lost(cause) => ("lost", Some(cause), None),
    };
    let (event, cause) = changed.map_or(("granted", None), |_| (event, cause));
    let time_left = match state {
        // The store has freed the lock before the deadline.
        State::Lost(Cause::TakenOver | Cause::Deleted | Cause::Revoked) => Duration::ZERO,
        _ => guard.time_left(),
    };
    let lost_in = until.map(|until| BootClock.now().until(until));
    json::object! {
        event: event,
        store: store,
        name: guard.name(),
        lease: guard.lease_id().to_string(),
        token: guard.token().get(),
        slot: slot,
        deadline: output::rfc3339(SystemTime::now() + time_left),
        time_left_ms: millis(time_left),
        lost_in_ms: millis(lost_in.unwrap_or_default()),
        // In the spelling of the other names in JSON.
        cause: cause.map(|cause| cause.name().replace('-', "_")),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
