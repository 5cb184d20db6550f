//! The clock that all processes of a machine share.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// An instant of `CLOCK_MONOTONIC`, in nanoseconds: the same in every process of this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Moment(u64);

impl Moment {
    pub(crate) fn now() -> Self {
        let now = Duration::try_from(clock_gettime(ClockId::Monotonic));
        // It is never negative on this clock.
        Self(nanos(now.unwrap_or_default()))
    }

    pub(crate) fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// The nanoseconds since an earlier moment; 0 if it was later.
    pub(crate) fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    pub(crate) fn since_boot(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Sleeps until then, to the millisecond.
    pub(crate) async fn wait(self) {
        let left = Duration::from_nanos(self.nanos_since(Self::now()));
        tokio::time::sleep(left).await;
    }
}

/// The time in which events count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Window {
    pub(crate) from: Moment,
    pub(crate) until: Moment,
}

impl Window {
    /// A window that begins after a warm-up.
    pub(crate) fn after(warm_up: Duration, duration: Duration) -> Self {
        let from = Moment::now().after(warm_up);
        let until = from.after(duration);
        Self { from, until }
    }

    pub(crate) fn contains(&self, moment: Moment) -> bool {
        self.from <= moment && moment < self.until
    }

    /// The nanoseconds between two moments that lie within.
    pub(crate) fn overlap(&self, begin: Moment, end: Moment) -> u64 {
        end.min(self.until).nanos_since(begin.max(self.from))
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_counts_what_lies_within() {
        let window = Window {
            from: Moment(100),
            until: Moment(200),
        };
        let within = [99, 100, 199, 200].map(|at| window.contains(Moment(at)));
        assert_eq!(within, [false, true, true, false]);
        let overlap = |(begin, end)| window.overlap(Moment(begin), Moment(end));
        let before_and_after = [(0, 50), (250, 300)].map(overlap);
        assert_eq!(before_and_after, [0, 0]);
        let partly = [(50, 150), (120, 130), (150, 250), (50, 250)].map(overlap);
        assert_eq!(partly, [50, 10, 50, 100]);
    }
}
