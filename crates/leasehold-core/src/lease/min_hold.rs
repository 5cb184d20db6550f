//! The minimum hold: a released lock stays taken until a time has passed since its grant.
//!
//! The client computes the remaining time when it sends the release, and again when it repeats it. The store then keeps
//! the name for that time. Each error is on the side of a longer hold: the time is counted from when the grant is known, which is
//! after it, and to when the release is sent, which is before it is applied; and the passed time is reduced by what the
//! local clock may gain on that of the store.

use std::time::Duration;

use crate::time::{Instant, Ttl, drift};

/// A minimum hold that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinHold {
    since: Instant,
    duration: Duration,
}

impl MinHold {
    /// The longest minimum hold: a store keeps no record longer without a renewal.
    pub const MAX: Duration = Ttl::MAX.as_duration();

    /// A minimum hold of a lease that is known to be granted at `now`.
    #[must_use]
    pub const fn begin(duration: Duration, now: Instant) -> Self {
        Self {
            since: now,
            duration,
        }
    }

    /// How long the name must stay taken from `now` on. `None`: the minimum hold is over.
    #[must_use]
    pub fn remaining(&self, now: Instant) -> Option<Ttl> {
        let passed = now.since(self.since);
        let certain = passed.saturating_sub(drift(passed));
        let remaining = self.duration.saturating_sub(certain);
        (!remaining.is_zero()).then(|| Ttl::remainder(remaining))
    }

    /// This one or the other, whichever ends later.
    #[must_use]
    pub fn or_later(&self, other: Self, now: Instant) -> Self {
        match self.remaining(now) > other.remaining(now) {
            true => *self,
            false => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, ms};

    fn min_hold(millis: u64, since: u64) -> MinHold {
        MinHold::begin(ms(millis), at(since))
    }

    #[test]
    fn the_remaining_time_shrinks_with_the_time_that_has_certainly_passed() {
        let minute = min_hold(60_000, 1_000);
        // The drift is a hundredth and 2 ms. The remaining time is rounded up.
        for (now, remaining) in [
            (0, Some(60_000)),
            (1_000, Some(60_000)),
            (1_002, Some(60_000)),
            (11_000, Some(50_103)),
            (61_000, Some(603)),
            (61_500, Some(108)),
            (61_608, Some(1)),
            (61_700, None),
            (u64::MAX / 1_000_000, None),
        ] {
            let remaining = remaining.and_then(Ttl::from_millis);
            assert_eq!(minute.remaining(at(now)), remaining, "{now} ms");
        }
        assert_eq!(min_hold(0, 1_000).remaining(at(1_000)), None);
        let longest = MinHold::begin(MinHold::MAX, at(0));
        assert_eq!(longest.remaining(at(0)), Some(Ttl::MAX));
    }

    /// Whatever the clocks do within their drift, the name is free at the end of the minimum hold at the earliest.
    #[test]
    fn the_remaining_time_never_ends_before_the_minimum_hold() {
        for duration in [1, 100, 60_000, 86_400_000] {
            for held in [0, 1, 50, 59_000, 60_000, 86_000_000] {
                let remaining = min_hold(duration, 0).remaining(at(held));
                let remaining = remaining.map_or(0.0, |ttl| ttl.as_duration().as_secs_f64());
                // A store whose clock runs 1 % slow has counted less time since the grant.
                let counted = ms(held).as_secs_f64() / 1.01;
                let whole = ms(duration).as_secs_f64();
                assert!(
                    counted + remaining >= whole,
                    "{whole} s, held for {held} ms"
                );
            }
        }
    }

    #[test]
    fn of_two_the_one_that_ends_later_counts() {
        let (first, second) = (min_hold(10_000, 0), min_hold(5_000, 2_000));
        assert_eq!(first.or_later(second, at(2_000)), first);
        assert_eq!(second.or_later(first, at(2_000)), first);
        let third = min_hold(9_000, 2_000);
        assert_eq!(first.or_later(third, at(2_000)), third);
    }
}
