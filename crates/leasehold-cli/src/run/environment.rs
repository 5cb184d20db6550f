//! The environment of the command.

use std::ffi::OsString;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold::Guard;

use crate::args::StoreArgs;
use crate::connect::credentials_of_command;
use crate::variables;

/// The name of the lock.
pub(crate) const NAME: &str = "LEASEHOLD_NAME";
/// The id of the lease, by which a nested run recognizes the outer one.
pub(crate) const LEASE: &str = "LEASEHOLD_LEASE";

pub(crate) fn of(
    guard: &Guard,
    store: &dyn fmt::Display,
    args: &StoreArgs,
) -> Vec<(&'static str, OsString)> {
    let deadline = SystemTime::now() + guard.time_left();
    let deadline_ms = deadline
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis();
    let mut variables = vec![
        (NAME, guard.name().into()),
        ("LEASEHOLD_TOKEN", guard.token().to_string().into()),
        (LEASE, guard.lease_id().to_string().into()),
        ("LEASEHOLD_DEADLINE", deadline_ms.to_string().into()),
        (variables::STORE, store.to_string().into()),
    ];
    variables.extend(credentials_of_command(args));
    variables
}
