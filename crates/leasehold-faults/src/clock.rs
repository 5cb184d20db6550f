//! The clock that all processes of the machine share, in nanoseconds, and clocks with another rate.

use std::fs;
use std::pin::Pin;

use leasehold::Instant;
use leasehold::clock::{BootClock, Clock};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// An instant by the clock that counts suspend.
pub(crate) type Nanos = u64;

pub(crate) const MILLI: Nanos = 1_000_000;

pub(crate) fn now() -> Nanos {
    BootClock.now().as_nanos()
}

/// A clock with another rate than the shared one since the start of the machine, as a percentage of that.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct DriftingClock {
    pub(crate) percent: u64,
}

impl DriftingClock {
    /// When it reaches an instant, by the shared clock.
    pub(crate) fn shared_time(self, instant: Instant) -> Nanos {
        let nanos = instant.as_nanos().saturating_mul(100);
        nanos.div_ceil(self.percent)
    }
}

impl Clock for DriftingClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(now() * self.percent / 100)
    }

    fn sleep_until(&self, instant: Instant) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let instant = Instant::from_nanos(self.shared_time(instant));
        Box::pin(async move { BootClock.sleep_until(instant).await })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drifting_clock_reaches_an_instant_at_its_shared_time() {
        let clock = DriftingClock { percent: 101 };
        let (before, instant, after) = (now(), clock.now(), now());
        let shared = clock.shared_time(instant);
        assert!(before <= shared && shared <= after);
        assert_eq!(clock.shared_time(Instant::from_nanos(1_011)), 1_001);
    }
}
