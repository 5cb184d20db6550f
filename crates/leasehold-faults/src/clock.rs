//! The clock that all processes of the machine share, in nanoseconds.

use std::fs;

use leasehold::clock::{BootClock, Clock};
use rustix::time::{ClockId, clock_gettime};

/// An instant by the clock that counts suspend.
pub(crate) type Nanos = u64;

pub(crate) const MILLI: Nanos = 1_000_000;

pub(crate) fn now() -> Nanos {
    BootClock.now().as_nanos()
}

/// How often the clocks are compared: on a busy machine this process may be paused between two readings.
const COMPARISONS: usize = 100;

/// How far the wall clock is ahead of the shared clock: a token is a time of the wall clock.
pub(crate) fn wall_offset() -> Nanos {
    let compared = (0..COMPARISONS).map(|_| compare());
    let shortest = compared.min_by_key(|(took, _)| *took);
    shortest.map_or(0, |(_, offset)| offset)
}

/// How long a comparison of the clocks took, and its result.
fn compare() -> (Nanos, Nanos) {
    let before = now();
    let wall = clock_gettime(ClockId::Realtime);
    let after = now();
    let seconds = u64::try_from(wall.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(wall.tv_nsec).unwrap_or(0);
    let offset = (seconds * 1_000_000_000 + nanos).saturating_sub(before.midpoint(after));
    (after - before, offset)
}

/// How long the threads of a process have run on a processor, in nanoseconds.
pub(crate) fn cpu_time(process: &str) -> Nanos {
    sum_of_threads(process, 0)
}

/// How long the threads of a process have waited for a processor, in nanoseconds.
pub(crate) fn run_queue_wait(process: &str) -> Nanos {
    sum_of_threads(process, 1)
}

/// The sum of a field of `schedstat` over the threads of a process.
fn sum_of_threads(process: &str, field: usize) -> Nanos {
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    let time = |thread: fs::DirEntry| {
        let stat = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        stat.split_whitespace().nth(field)?.parse::<u64>().ok()
    };
    let threads = threads.into_iter().flatten().flatten();
    threads.filter_map(time).sum()
}
