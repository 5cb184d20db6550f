//! Directed schedules of faults against real servers: what breaks, and when, is chosen.
//!
//! Each test has a server of its own. Client A comes to it by way of a proxy that the test drives,
//! client B directly. Both want the same lock, a judge looks at every grant, and a resource refuses
//! whoever comes with an old token.

/// Makes one test of several schedules: each mostly waits, so they run at the same time.
macro_rules! side_by_side {
    ($($schedule:ident),+ $(,)?) => {
        #[test]
        fn side_by_side() {
            $crate::faults::scene::all_hold(&[$((stringify!($schedule), || {
                $crate::faults::scene::play($schedule());
            })),+]);
        }
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
mod replies;
mod scene;
mod servers;
