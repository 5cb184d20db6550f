//! Directed schedules of faults against real servers: what fails, and when, is chosen.
//!
//! Each test has a server. Client A reaches it through a proxy that the test controls, client B directly. Both acquire
//! the same lock, a checker observes every grant, and a resource rejects a write with an old token.

/// Lists the schedules of a file, for a test that runs them.
macro_rules! schedules {
    ($($schedule:ident),+ $(,)?) => {
        pub(super) const SCHEDULES: &[$crate::faults::runner::Schedule] = &[$((stringify!($schedule), || {
            $crate::faults::runner::run($schedule());
        })),+];
    };
}

mod checker;
mod clocks;
mod forgotten_records;
mod late_requests;
mod long_stops;
mod lost_replies;
mod many_leases;
mod network;
mod partitions;
mod runner;
mod scenario;

/// Faults of the network. The schedules mostly wait, so they run side by side.
#[test]
fn of_the_network() {
    let all = [
        late_requests::SCHEDULES,
        network::SCHEDULES,
        partitions::SCHEDULES,
    ];
    runner::run_all(&all.concat());
}

/// Lost replies and faults of the store, in the same way.
#[test]
fn of_the_store() {
    let all = [
        clocks::SCHEDULES,
        forgotten_records::SCHEDULES,
        lost_replies::SCHEDULES,
    ];
    runner::run_all(&all.concat());
}
