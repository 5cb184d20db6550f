//! The clock that all processes of a machine share.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// An instant of `CLOCK_MONOTONIC`, in nanoseconds: the same in every process of this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Moment(u64);

impl Moment {
    pub(super) fn now() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        // Neither is ever negative on this clock.
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
        Self(seconds * 1_000_000_000 + nanos)
    }

    pub(super) fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }

    /// The nanoseconds since an earlier moment; 0 if it was later.
    pub(super) fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    pub(super) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }

    /// Sleeps until then, to the millisecond.
    pub(super) async fn come(self) {
        tokio::time::sleep(self.since(Self::now())).await;
    }
}

/// When what happens counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Window {
    pub(super) from: Moment,
    pub(super) until: Moment,
}

impl Window {
    /// One that begins after a warm-up.
    pub(super) fn soon(warm_up: Duration, span: Duration) -> Self {
        let from = Moment::now().after(warm_up);
        Self {
            from,
            until: from.after(span),
        }
    }

    pub(super) fn contains(&self, moment: Moment) -> bool {
        self.from <= moment && moment < self.until
    }

    /// How many nanoseconds of the time between two moments lie within.
    pub(super) fn overlap(&self, begin: Moment, end: Moment) -> u64 {
        end.min(self.until).nanos_since(begin.max(self.from))
    }
}

pub(super) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
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
        for (at, within) in [(99, false), (100, true), (199, true), (200, false)] {
            assert_eq!(window.contains(Moment(at)), within, "{at}");
        }
        for (begin, end, nanos) in [
            (0, 50, 0),
            (50, 150, 50),
            (120, 130, 10),
            (150, 250, 50),
            (50, 250, 100),
            (250, 300, 0),
        ] {
            let overlap = window.overlap(Moment(begin), Moment(end));
            assert_eq!(overlap, nanos, "{begin} to {end}");
        }
    }

    #[test]
    fn the_clock_goes_on() {
        let before = Moment::now();
        let later = before.after(Duration::from_millis(1));
        while Moment::now() < later {
            std::hint::spin_loop();
        }
        assert!(Moment::now().since(before) >= Duration::from_millis(1));
        assert_eq!(before.nanos_since(later), 0);
    }
}
