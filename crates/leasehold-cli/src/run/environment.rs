//! The environment of the command.

use std::ffi::OsString;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold::{Guard, Token};

use crate::args::StoreArgs;
use crate::credentials;
use crate::variables;

/// The variables that are set, or removed if they have no value.
pub(crate) fn of(
    guard: &Guard,
    term: Option<Token>,
    store: &dyn fmt::Display,
    args: &StoreArgs,
) -> Vec<(&'static str, Option<OsString>)> {
    let deadline = SystemTime::now() + guard.time_left();
    let deadline_ms = deadline
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis();
    let own = [
        (variables::NAME, guard.name().to_owned()),
        (variables::TOKEN, guard.token().to_string()),
        (variables::LEASE, guard.lease_id().to_string()),
        (variables::DEADLINE, deadline_ms.to_string()),
        (variables::STORE, store.to_string()),
    ];
    let own = own.map(|(name, value)| (name, Some(value.into())));
    let term = term.map(|term| (variables::TERM, Some(term.to_string().into())));
    own.into_iter()
        .chain(term)
        .chain(credentials::of_command(args))
        .collect()
}
