//! The lines of `hold`.

use std::time::{Duration, SystemTime};

use leasehold::clock::{BootClock, Clock as _};
use leasehold::{Cause, Guard, State};
use serde::Serialize;

use super::millis;
use crate::output;

/// A line of `hold`.
#[derive(Debug, Serialize)]
pub(crate) struct Hold<'a> {
    event: &'static str,
    store: &'a str,
    name: &'a str,
    lease: String,
    token: u64,
    deadline: Option<String>,
    time_left_ms: u64,
    lost_in_ms: u64,
    cause: Option<String>,
}

impl<'a> Hold<'a> {
    pub(crate) fn granted(store: &'a str, guard: &'a Guard) -> Self {
        Self::new("granted", None, store, guard, guard.state())
    }

    pub(crate) fn changed(store: &'a str, guard: &'a Guard, state: State) -> Self {
        let (event, cause) = match state {
            State::Held { .. } => ("held", None),
            State::Jeopardy { cause, .. } => ("jeopardy", Some(cause)),
            State::Lost(cause) => ("lost", Some(cause)),
        };
        Self::new(event, cause, store, guard, state)
    }

    fn new(
        event: &'static str,
        cause: Option<Cause>,
        store: &'a str,
        guard: &'a Guard,
        state: State,
    ) -> Self {
        let time_left = match state {
            // The store has freed the lock before the deadline.
            State::Lost(Cause::TakenOver | Cause::Deleted | Cause::Revoked) => Duration::ZERO,
            _ => guard.time_left(),
        };
        let lost_in = match state {
            State::Held { until } | State::Jeopardy { until, .. } => BootClock.now().until(until),
            State::Lost(_) => Duration::ZERO,
        };
        Self {
            event,
            store,
            name: guard.name(),
            lease: guard.lease_id().to_string(),
            token: guard.token().get(),
            deadline: output::rfc3339(SystemTime::now() + time_left),
            time_left_ms: millis(time_left),
            lost_in_ms: millis(lost_in),
            // In the spelling of the other names in JSON.
            cause: cause.map(|cause| cause.name().replace('-', "_")),
        }
    }
}
