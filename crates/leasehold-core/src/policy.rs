//! When a lease is renewed, and when it is given up.

use std::fmt;
use std::time::Duration;

use crate::time::{self, Instant, Ttl};

/// The part of an interval by which renewals are spread: one in this number.
const SPREAD_DIVISOR: u64 = 10;

/// Renewals are due at the points of a grid, at least this many of which fit into an interval. So renewals that
/// are due at about the same time are sent together.
const GRID: u64 = 64;

/// When a lease is renewed and when it is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The ttl of each renewal.
    pub ttl: Ttl,
    /// The longest time from one renewal to the next.
    pub interval: Duration,
    /// The time before the deadline at which the lease is given up.
    pub margin: Duration,
    /// How long after its grant it is no longer renewed. `None`: it is renewed until its release.
    pub max_hold: Option<Duration>,
}

impl Policy {
    /// The default policy of a renewed lease of this ttl.
    ///
    /// A renewal is due after a third of the ttl. With another third as margin, two failed renewals in a row
    /// end the lease with a third of its ttl left to stop the work.
    #[must_use]
    pub fn of(ttl: Ttl) -> Self {
        let third = ttl.as_duration() / 3;
        Self {
            ttl,
            interval: third,
            margin: third,
            max_hold: None,
        }
    }

    /// Checks that the durations fit together.
    ///
    /// # Errors
    ///
    /// Names those that do not.
    pub fn check(&self) -> Result<(), PolicyError> {
        let ttl = self.ttl.as_duration();
        let (interval, margin) = (self.interval, self.margin);
        if interval < Self::INTERVAL_MIN {
            return Err(PolicyError::Interval(interval));
        }
        // A renewal that fails must be retried before the lease is given up.
        if interval + self.retry() + margin + time::drift(ttl) > ttl {
            return Err(PolicyError::Sum(*self));
        }
        match self.max_hold {
            Some(max_hold) if max_hold < ttl => Err(PolicyError::MaxHold(max_hold, ttl)),
            _ => Ok(()),
        }
    }

    /// The shortest interval. Below it, the store would do little else.
    pub const INTERVAL_MIN: Duration = Duration::from_millis(10);

    /// The interval between a failed renewal and its retry: a tenth of the interval.
    #[must_use]
    pub fn retry(&self) -> Duration {
        retry(self.interval)
    }

    pub(crate) fn pace(&self) -> Pace {
        Pace {
            interval: nanos(self.interval),
            margin: nanos(self.margin),
        }
    }
}

fn retry(interval: Duration) -> Duration {
    (interval / 10).max(Duration::from_millis(5))
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Why a policy is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyError {
    /// The interval is too short.
    Interval(Duration),
    /// There is no time for a retry between interval and margin.
    Sum(Policy),
    /// The longest hold is shorter than the ttl.
    MaxHold(Duration, Duration),
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interval(interval) => write!(
                f,
                "leases must be renewed every {:?} or less often, not every {interval:?}",
                Policy::INTERVAL_MIN
            ),
            Self::Sum(policy) => write!(
                f,
                "a lease of {:?} that is renewed every {:?} and given up {:?} before its end leaves no \
                 time for a second try",
                policy.ttl, policy.interval, policy.margin
            ),
            Self::MaxHold(max_hold, ttl) => write!(
                f,
                "the longest hold of {max_hold:?} must not be shorter than the ttl of {ttl:?}; take a \
                 fixed lease instead"
            ),
        }
    }
}

impl std::error::Error for PolicyError {}

/// The times of one lease, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    interval: u64,
    margin: u64,
}

impl Pace {
    pub(crate) const fn interval(self) -> Duration {
        Duration::from_nanos(self.interval)
    }

    pub(crate) const fn margin(self) -> Duration {
        Duration::from_nanos(self.margin)
    }

    pub(crate) fn retry(self) -> Duration {
        retry(self.interval())
    }

    /// The pace of a lease that the store keeps for `ttl` instead of `whole`, in proportion.
    pub(crate) fn part(self, ttl: Ttl, whole: Ttl) -> Self {
        let (ttl, whole) = (u128::from(ttl.as_millis()), u128::from(whole.as_millis()));
        let part = |span| u64::try_from(u128::from(span) * ttl / whole).unwrap_or(u64::MAX);
        Self {
            interval: part(self.interval),
            margin: part(self.margin),
        }
    }

    /// When a lease is renewed that was confirmed by a request sent at `sent`: an interval later or up to an
    /// eighth of it earlier. `last` distinguishes leases that were confirmed together; without it, leases that
    /// were once due together would be for ever.
    pub(crate) fn due(self, sent: Instant, last: Instant) -> Instant {
        let seed = sent.as_nanos() ^ last.as_nanos().rotate_left(32);
        let early = scramble(seed) % (self.interval / SPREAD_DIVISOR).max(1);
        let due = sent
            .after(self.interval())
            .before(Duration::from_nanos(early));
        let grain = 1 << (self.interval / GRID).max(1).ilog2();
        let due = due.as_nanos();
        Instant::from_nanos(due - due % grain).max(sent)
    }
}

/// Mixes the bits of a number, so that neighbours come out far apart: the finalizer of SplitMix64
/// (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
fn scramble(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ms, ttl};

    #[test]
    fn every_ttl_has_a_policy_that_fits() {
        for ttl in [Ttl::USER_MIN, ttl(1_000), ttl(30_000), Ttl::MAX] {
            assert_eq!(Policy::of(ttl).check(), Ok(()), "{ttl:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let policy = Policy::of(ttl(30_000));
        let sum = Policy {
            interval: ms(20_000),
            ..policy
        };
        assert_eq!(sum.check(), Err(PolicyError::Sum(sum)));
        let sum = Policy {
            margin: ms(20_000),
            ..policy
        };
        assert_eq!(sum.check(), Err(PolicyError::Sum(sum)));
        let short = Policy {
            interval: ms(9),
            ..policy
        };
        assert_eq!(short.check(), Err(PolicyError::Interval(ms(9))));
        let hold = Policy {
            max_hold: Some(ms(29_999)),
            ..policy
        };
        assert!(matches!(hold.check(), Err(PolicyError::MaxHold(..))));
        let fits = Policy {
            interval: ms(5_000),
            margin: Duration::ZERO,
            max_hold: Some(ms(30_000)),
            ..policy
        };
        assert_eq!(fits.check(), Ok(()));
    }

    #[test]
    fn renewals_are_spread_and_yet_travel_together() {
        let pace = Policy::of(ttl(30_000)).pace();
        let sent = Instant::from_nanos(123_456_789_012_345);
        let mut lines = std::collections::BTreeMap::<_, u32>::new();
        for last in 0..10_000 {
            let due = pace.due(sent, Instant::from_nanos(last));
            assert!(due <= sent.after(ms(10_000)));
            assert!(due >= sent.after(ms(8_750)));
            *lines.entry(due).or_default() += 1;
        }
        assert!((7..=20).contains(&lines.len()), "{lines:?}");
        let most = lines.values().max().unwrap();
        assert!(*most < 2_000, "{lines:?}");
    }

    #[test]
    fn no_renewal_is_due_before_its_grant() {
        for ttl in [ttl(1), ttl(2), ttl(100)] {
            let pace = Policy::of(ttl).pace();
            for sent in (0..1_000_000).step_by(997).map(Instant::from_nanos) {
                assert!(pace.due(sent, sent) >= sent);
            }
        }
    }
}
