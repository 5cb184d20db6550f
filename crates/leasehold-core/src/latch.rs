//! The parts of a count-down latch: its count, its status and the ids of its arrivals.
//!
//! A latch opens when as many members have arrived as its count says, and stays open until it ends or is removed. Each
//! arrival has an id, and the record keeps the set of them. So an arrival that is sent again, or whose reply was lost, is
//! counted once: a number that each arrival counts down would open the latch too early.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::name::{self, NameError};

/// The longest id of an arrival in bytes.
pub const ARRIVAL_ID_BYTES_MAX: usize = 256;

/// The shortest time for which a latch is kept.
pub const TTL_MIN: Duration = Duration::from_secs(1);

/// The time for which a latch is kept, unless its user chooses another.
pub const TTL_DEFAULT: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest time for which a latch is kept: a year. One that is never reset does not stay for ever.
pub const TTL_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How many arrivals open a latch: 1 to [`LatchCount::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LatchCount(NonZeroU32);

impl LatchCount {
    /// The largest count. A store compares each arrival with those before it, and keeps their ids, up to 256 bytes each,
    /// in one record. With this count a Redis server needs a millisecond for that, in which it does nothing else, and
    /// 3 MB.
    pub const MAX: u32 = 10_000;

    /// A count within the limits.
    #[must_use]
    pub fn new(count: u32) -> Option<Self> {
        let count = NonZeroU32::new(count).filter(|count| count.get() <= Self::MAX);
        count.map(Self)
    }

    /// The count as a number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for LatchCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id of an arrival: arrivals with the same id count once.
///
/// 1 to [`ARRIVAL_ID_BYTES_MAX`] bytes of UTF-8 without control characters, and without a space at the start or end.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ArrivalId(Arc<str>);

impl ArrivalId {
    /// Parses an id.
    ///
    /// # Errors
    ///
    /// [`NameError`] if it is invalid.
    pub fn parse(id: &str) -> Result<Self, NameError> {
        name::check_text(id, ARRIVAL_ID_BYTES_MAX)?;
        Ok(Self(id.into()))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ArrivalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How many members have arrived at a latch, of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LatchStatus {
    /// How many have arrived, at most the count.
    pub arrived: u32,
    /// How many arrivals open the latch.
    pub count: u32,
}

impl LatchStatus {
    /// Whether the latch is open: all have arrived.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.arrived >= self.count
    }

    /// How many are missing until it opens.
    #[must_use]
    pub const fn missing(&self) -> u32 {
        self.count.saturating_sub(self.arrived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_ids_have_limits() {
        for (count, valid) in [(0, false), (1, true), (10_000, true), (10_001, false)] {
            assert_eq!(LatchCount::new(count).is_some(), valid, "{count}");
        }
        for (id, valid) in [
            ("", false),
            ("a b/{c}:*", true),
            ("a\nb", false),
            (&"n".repeat(256), true),
            (&"n".repeat(257), false),
        ] {
            assert_eq!(ArrivalId::parse(id).is_ok(), valid, "{id:?}");
        }
    }
}
