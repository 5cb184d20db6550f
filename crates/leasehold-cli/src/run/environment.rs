//! The environment of the command.

use std::ffi::OsString;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold::Guard;

use crate::args::StoreArgs;
use crate::credentials;
use crate::lock::guard::AnyGuard;
use crate::lock::outer_leases;
use crate::variables;

/// The variables that are set, or removed if they have no value.
pub(crate) fn of(
    held: &AnyGuard,
    store: &dyn fmt::Display,
    args: &StoreArgs,
) -> Vec<(&'static str, Option<OsString>)> {
    let guard: &Guard = held;
    let deadline = SystemTime::now() + guard.time_left();
    let deadline = deadline.duration_since(UNIX_EPOCH).unwrap_or_default();
    let own = [
        (variables::NAME, guard.name().to_owned()),
        (variables::TOKEN, guard.token().to_string()),
        (variables::LEASE, guard.lease_id().to_string()),
        (variables::DEADLINE, deadline.as_millis().to_string()),
        (variables::STORE, store.to_string()),
    ];
    let own = own.map(|(name, value)| (name, Some(value.into())));
    let term = held.term().map(|term| term.to_string());
    let term = term.map(|term| (variables::TERM, Some(term.into())));
    // Not that of a run around this one.
    let slot = held.slot().map(|slot| slot.to_string().into());
    let tokens = held.tokens().map(|tokens| tokens.join(" ").into());
    let outer: Vec<_> = outer_leases().iter().map(ToString::to_string).collect();
    let outer = (!outer.is_empty()).then(|| outer.join(" ").into());
    own.into_iter()
        .chain(term)
        .chain([
            (variables::SLOT, slot),
            (variables::TOKENS, tokens),
            (variables::OUTER, outer),
        ])
        .chain(credentials::of_command(args))
        .collect()
}
