//! Connections to servers.
//!
//! * `connection_manager` keeps one `session` to a target, which `connect` opens; `sentinel` finds the target where
//!   sentinels know it.
//! * `subscriptions` receives grants, `tracking` detects changed records, and `notifications` passes both on to the
//!   `clients` and to the `observers` of names.

pub(crate) mod clients;
pub(crate) mod connect;
pub(crate) mod connection_manager;
pub(crate) mod notifications;
pub(crate) mod observers;
mod sentinel;
pub(crate) mod session;
pub(crate) mod session_state;
pub(crate) mod subscriptions;
pub(crate) mod tracking;
