//! The clock that all processes of the machine share, in nanoseconds.

use leasehold::clock::{BootClock, Clock};
use rustix::time::{ClockId, clock_gettime};

/// An instant by the clock that counts suspend.
pub(crate) type Nanos = u64;

pub(crate) const MILLI: Nanos = 1_000_000;

pub(crate) fn now() -> Nanos {
    BootClock.now().as_nanos()
}

/// How far the wall clock is ahead of the shared clock: a token is a time of the wall clock.
pub(crate) fn wall_offset() -> Nanos {
    let before = now();
    let wall = clock_gettime(ClockId::Realtime);
    let middle = before.midpoint(now());
    let seconds = u64::try_from(wall.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(wall.tv_nsec).unwrap_or(0);
    (seconds * 1_000_000_000 + nanos).saturating_sub(middle)
}
