//! Directed schedules of faults against real servers: what breaks, and when, is chosen.
//!
//! Each test has a server of its own. Client A comes to it by way of a proxy that the test drives,
//! client B directly. Both want the same lock, a judge looks at every grant, and a resource refuses
//! whoever comes with an old token.

/// Lists the schedules of a file, for a test that plays them.
macro_rules! schedules {
    ($($schedule:ident),+ $(,)?) => {
        pub(super) const SCHEDULES: &[$crate::faults::play::Schedule] = &[$((stringify!($schedule), || {
            $crate::faults::play::play($schedule());
        })),+];
    };
}

mod a_long_stop;
mod causes;
mod clocks;
mod crowd;
mod forgetting;
mod judge;
mod late;
mod network;
mod partitions;
mod play;
mod replies;
mod scenario;
mod servers;

/// What happens on the way to the store. The schedules mostly wait, so they are played side by side.
#[test]
fn of_the_network() {
    let all = [late::SCHEDULES, network::SCHEDULES, partitions::SCHEDULES];
    play::all_hold(&all.concat());
}

/// What happens to answers and to the store, the same way.
#[test]
fn of_the_store() {
    let all = [
        clocks::SCHEDULES,
        forgetting::SCHEDULES,
        replies::SCHEDULES,
        servers::SCHEDULES,
    ];
    play::all_hold(&all.concat());
}
