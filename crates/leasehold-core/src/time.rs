//! All deadline arithmetic and all rounding.
//!
//! Two clocks never meet here. [`StoreTime`] is the clock of a store, [`Instant`] the clock of this
//! machine; only durations pass from one to the other. Local deadlines round down, times to live in
//! a store round up, so that a holder gives up before the store does.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

/// The part of a ttl by which two clocks may drift apart: one in this number (1 %).
///
/// The same allowance as in the published Redlock text and its libraries.
pub const DRIFT_DIVISOR: u32 = 100;

/// The granularity of a clock and a store, which adds to the drift.
pub const DRIFT_MIN: Duration = Duration::from_millis(2);

/// An instant of the local clock, which keeps counting while the machine sleeps.
///
/// Nanoseconds since a start that only this machine knows. One is added to them, so that an `Option` takes no
/// more space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Instant(NonZeroU64);

impl Default for Instant {
    /// The start.
    fn default() -> Self {
        Self::from_nanos(0)
    }
}

impl Instant {
    /// An instant from the nanoseconds of the local clock.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    /// The nanoseconds of the local clock.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// The time from `earlier` to here, zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.as_nanos().saturating_sub(earlier.as_nanos()))
    }

    /// The time from here to `later`, zero if `later` has passed.
    #[must_use]
    pub const fn until(self, later: Self) -> Duration {
        later.since(self)
    }

    /// The instant a duration later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self::from_nanos(self.as_nanos().saturating_add(nanos(duration)))
    }

    /// The instant a duration earlier.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self::from_nanos(self.as_nanos().saturating_sub(nanos(duration)))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.as_nanos()))
    }
}

/// An instant of a store's clock: microseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct StoreTime(u64);

impl StoreTime {
    /// A time from the microseconds of the store's clock.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// The microseconds of the store's clock.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The time a ttl later.
    #[must_use]
    pub const fn after(self, ttl: Ttl) -> Self {
        Self(self.0.saturating_add(ttl.as_millis() * 1000))
    }

    /// The time a duration later, to the microsecond.
    #[must_use]
    pub fn after_span(self, span: Duration) -> Self {
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(micros))
    }

    /// The time a duration earlier, to the microsecond, not before the epoch.
    #[must_use]
    pub fn before_span(self, span: Duration) -> Self {
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(micros))
    }

    /// The time from here to `later`, zero if `later` has passed.
    #[must_use]
    pub const fn until(self, later: Self) -> Duration {
        Duration::from_micros(later.0.saturating_sub(self.0))
    }
}

impl fmt::Debug for StoreTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

/// How long a store keeps a lease without a renewal: whole milliseconds, from 1 ms to 24 h.
///
/// Users choose [`Ttl::USER_MIN`] or more; a shorter ttl is the remainder of a longer one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ttl(u32);

impl Ttl {
    /// The shortest ttl that a user may choose. Below it, network and scheduler decide which lease is held.
    pub const USER_MIN: Self = Self(100);
    /// The longest ttl. A longer lease must be renewed.
    pub const MAX: Self = Self(24 * 60 * 60 * 1000);

    /// The ttl of a user: from 100 ms to 24 h, rounded up to whole milliseconds.
    #[must_use]
    pub fn checked(ttl: Duration) -> Option<Self> {
        let ttl = Self::round_up(ttl);
        (Self::USER_MIN..=Self::MAX).contains(&ttl).then_some(ttl)
    }

    /// The remainder of a lease, rounded up, at least 1 ms and at most [`Ttl::MAX`].
    #[must_use]
    pub fn remainder(left: Duration) -> Self {
        Self::round_up(left).clamp(Self(1), Self::MAX)
    }

    /// A ttl from milliseconds of a store or a script.
    #[must_use]
    pub fn from_millis(millis: u64) -> Option<Self> {
        u32::try_from(millis)
            .ok()
            .map(Self)
            .filter(|ttl| (Self(1)..=Self::MAX).contains(ttl))
    }

    /// The ttl in milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 as u64
    }

    /// The ttl as a duration.
    #[must_use]
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.as_millis())
    }

    fn round_up(span: Duration) -> Self {
        let millis = span.as_nanos().div_ceil(1_000_000);
        Self(u32::try_from(millis).unwrap_or(u32::MAX))
    }
}

impl fmt::Debug for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_duration())
    }
}

/// As people write it: see [`in_units`].
impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_units(self.as_duration()))
    }
}

/// A duration as people write it, such as `500ms`, `1.5s` or `1h 30m`.
#[must_use]
pub fn in_units(duration: Duration) -> String {
    let mut rest = duration;
    let mut parts = Vec::new();
    for (unit, seconds) in [("d", 86_400), ("h", 3_600), ("m", 60)] {
        let number = rest.as_secs() / seconds;
        if number > 0 {
            parts.push(format!("{number}{unit}"));
            rest -= Duration::from_secs(number * seconds);
        }
    }
    if !rest.is_zero() || parts.is_empty() {
        parts.push(format!("{rest:?}"));
    }
    parts.join(" ")
}

/// How far the clocks of a holder and its store may drift apart over `span`.
///
/// `span / 100 + 2 ms`, rounded up.
#[must_use]
pub fn drift(span: Duration) -> Duration {
    span / DRIFT_DIVISOR + Duration::from_nanos(1) + DRIFT_MIN
}

/// The instant until which a lease may be relied on.
///
/// Counted from *before* the request was sent: the store cannot have started its ttl earlier, so it
/// cannot end it earlier either, as long as both clocks run at the same rate within [`drift`].
#[must_use]
pub fn deadline(sent: Instant, ttl: Ttl) -> Instant {
    let ttl = ttl.as_duration();
    sent.after(ttl.saturating_sub(drift(ttl)))
}

/// The earliest time at which a store granted a lease that it notified, and until when the lease may be relied
/// on.
///
/// `sent` is when the request was sent that put the lease into the queue, and `waited` the time from the reply
/// to the grant, by the store's clock. The store replied after the request was sent, so it granted the lease no
/// earlier than `sent + waited`, as far as the clocks agree over the whole time. It also granted it before the
/// notice was `received`.
#[must_use]
pub fn granted(sent: Instant, waited: Duration, received: Instant, ttl: Ttl) -> (Instant, Instant) {
    let granted = sent.after(waited).min(received);
    let ttl = ttl.as_duration();
    let deadline = granted.after(ttl.saturating_sub(drift(waited + ttl)));
    (granted, deadline)
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_rounds_up_and_knows_its_limits() {
        assert_eq!(Ttl::checked(Duration::ZERO), None);
        assert_eq!(Ttl::checked(Duration::from_millis(99)), None);
        assert_eq!(
            Ttl::checked(Duration::from_micros(100_001)).map(Ttl::as_millis),
            Some(101)
        );
        assert_eq!(
            Ttl::checked(Ttl::MAX.as_duration()).map(Ttl::as_millis),
            Some(86_400_000)
        );
        assert_eq!(Ttl::checked(Duration::from_secs(86_401)), None);
        assert_eq!(Ttl::checked(Duration::MAX), None);
        assert_eq!(Ttl::remainder(Duration::ZERO).as_millis(), 1);
        assert_eq!(Ttl::from_millis(0), None);
    }

    #[test]
    fn a_deadline_comes_before_the_store_can_expire_the_lease() {
        let sent = Instant::from_nanos(1_000);
        for millis in [1, 2, 100, 30_000, 86_400_000] {
            let Some(ttl) = Ttl::from_millis(millis) else {
                unreachable!()
            };
            let validity = deadline(sent, ttl).since(sent);
            // A store whose clock runs 1 % fast ends the lease after ttl / 1.01.
            let fast = ttl.as_duration().mul_f64(1.0 / 1.01);
            assert!(validity <= fast, "{validity:?} > {fast:?}");
        }
    }

    #[test]
    fn a_duration_is_displayed_as_people_write_it() {
        for (millis, text) in [
            (0, "0ns"),
            (500, "500ms"),
            (1_500, "1.5s"),
            (60_000, "1m"),
            (3_600_000, "1h"),
            (5_430_500, "1h 30m 30.5s"),
            (172_800_000, "2d"),
        ] {
            assert_eq!(in_units(Duration::from_millis(millis)), text);
        }
        assert_eq!(Ttl::MAX.to_string(), "1d");
    }

    #[test]
    fn nothing_overflows() {
        let end = Instant::from_nanos(u64::MAX - 1);
        assert_eq!(end.after(Duration::MAX), end);
        assert_eq!(end.before(Duration::MAX), Instant::default());
        assert_eq!(
            StoreTime::from_micros(u64::MAX).after(Ttl::MAX).as_micros(),
            u64::MAX
        );
        let early = StoreTime::from_micros(3);
        assert_eq!(early.before_span(Duration::MAX), StoreTime::default());
    }
}
