//! The watchdog over real servers, real sockets and real processes.

// The clippy settings know the functions with #[test] as tests, but not their helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod actor;
mod deaths;
mod fixture;
mod flood;
mod helper;
mod http;
mod limits;
mod listening;
mod manager;
mod peer;
mod refusals;
mod remote;
mod silences;
mod status;
mod watched_holder;

/// The helper process of other tests, see [`helper::serve`].
#[test]
fn helper() {
    if leasehold_testkit::helper::is_helper() {
        helper::serve();
    }
}
