//! The environment of the command.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold::Guard;

/// The name of the lock.
pub(crate) const NAME: &str = "LEASEHOLD_NAME";
/// The id of the lease, by which a nested run recognizes the outer one.
pub(crate) const LEASE: &str = "LEASEHOLD_LEASE";

pub(crate) fn of(guard: &Guard, store: &dyn fmt::Display) -> Vec<(&'static str, String)> {
    let deadline = SystemTime::now() + guard.time_left();
    let deadline_ms = deadline
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis();
    vec![
        (NAME, guard.name().to_owned()),
        ("LEASEHOLD_TOKEN", guard.token().to_string()),
        (LEASE, guard.lease_id().to_string()),
        ("LEASEHOLD_DEADLINE", deadline_ms.to_string()),
        ("LEASEHOLD_STORE", store.to_string()),
    ]
}
