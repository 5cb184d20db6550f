//! The lines on stdout.

use std::time::{Duration, SystemTime};

use leasehold::clock::{BootClock, Clock as _};
use leasehold::{Cause, Guard, State};
use serde::Serialize;

use crate::output;

/// The lock at a change of its state.
#[derive(Debug, Serialize)]
pub(super) struct Record<'a> {
    event: &'static str,
    store: &'a str,
    name: &'a str,
    lease: String,
    token: u64,
    slot: Option<u32>,
    deadline: Option<String>,
    time_left_ms: u64,
    lost_in_ms: u64,
    cause: Option<String>,
}

impl<'a> Record<'a> {
    pub(super) fn granted(store: &'a str, guard: &'a Guard, slot: Option<u32>) -> Self {
        Self {
            event: "granted",
            cause: None,
            ..Self::changed(store, guard, slot, guard.state())
        }
    }

    pub(super) fn changed(
        store: &'a str,
        guard: &'a Guard,
        slot: Option<u32>,
        state: State,
    ) -> Self {
        let (event, cause, until) = match state {
            State::Held { until } => ("held", None, Some(until)),
            State::Jeopardy { cause, until } => ("jeopardy", Some(cause), Some(until)),
            State::Lost(cause) => ("lost", Some(cause), None),
        };
        let time_left = match state {
            // The store has freed the lock before the deadline.
            State::Lost(Cause::TakenOver | Cause::Deleted | Cause::Revoked) => Duration::ZERO,
            _ => guard.time_left(),
        };
        let lost_in = until.map(|until| BootClock.now().until(until));
        Self {
            event,
            store,
            name: guard.name(),
            lease: guard.lease_id().to_string(),
            token: guard.token().get(),
            slot,
            deadline: output::rfc3339(SystemTime::now() + time_left),
            time_left_ms: millis(time_left),
            lost_in_ms: millis(lost_in.unwrap_or_default()),
            // In the spelling of the other names in JSON.
            cause: cause.map(|cause| cause.name().replace('-', "_")),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
