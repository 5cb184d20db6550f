//! The rule of a count-down latch: what an arrival does to its record.
//!
//! A latch opens when as many members have arrived as its count says, and stays open until its record expires or is
//! removed. Each arrival has an id, and the record keeps the set of them. So an arrival that is sent again, or whose
//! reply was lost, is counted once: a number that each arrival counts down would open the latch too early.
//!
//! A name is used for one kind of object at a time: as long as a latch has a record, operations on the lock with the
//! same name are refused, and as long as the lock is held, operations on the latch are.

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::mutex::Record;
use crate::name::{self, NameError};
use crate::time::StoreTime;

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

/// An arrival at a latch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its id.
    pub id: ArrivalId,
    /// The count of the latch, the same for all arrivals.
    pub count: LatchCount,
    /// How long the record is kept after this arrival at least.
    pub ttl: Duration,
}

/// The record of a latch in a store. It has one arrival at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatchRecord {
    /// The count of the arrival that made it.
    pub count: LatchCount,
    /// The ids that have arrived, at most as many as the count: the later ones change nothing and are not stored.
    pub arrived: BTreeSet<ArrivalId>,
    /// When it ends.
    pub expires_at: StoreTime,
}

impl LatchRecord {
    /// Whether it has not expired.
    #[must_use]
    pub fn is_kept(&self, now: StoreTime) -> bool {
        now < self.expires_at
    }

    /// How many have arrived, of how many.
    #[must_use]
    pub fn status(&self) -> LatchStatus {
        LatchStatus {
            arrived: u32::try_from(self.arrived.len()).unwrap_or(u32::MAX),
            count: self.count.get(),
        }
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

/// Why an operation on a latch is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatchRefusal {
    /// A lease holds the lock with the same name, or keeps it taken.
    Lock,
    /// The latch was made with another count.
    Count {
        /// The count of the record.
        stored: u32,
        /// The count of the request.
        requested: u32,
    },
}

impl fmt::Display for LatchRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock => f.write_str(
                "the name is used as a lock, and this is an operation on a latch; choose another name for one of them",
            ),
            Self::Count { stored, requested } => write!(
                f,
                "the latch has the count {stored}, not {requested}; use one count for all members, or reset the latch"
            ),
        }
    }
}

impl std::error::Error for LatchRefusal {}

/// Applies an arrival at the store's time `now`. `lock` is the record of the lock with the same name.
///
/// The first arrival makes the record. An arrival whose id is known changes nothing, and does not lengthen the time for
/// which the record is kept; nor does one at an open latch. No arrival shortens that time.
///
/// # Errors
///
/// [`LatchRefusal`]; nothing is changed.
pub fn arrive(
    lock: &Record,
    stored: &mut Option<LatchRecord>,
    arrival: &Arrival,
    now: StoreTime,
) -> Result<LatchStatus, LatchRefusal> {
    check_lock(lock, now)?;
    let expires_at = now.after_span(arrival.ttl);
    let kept = stored.take().filter(|latch| latch.is_kept(now));
    let latch = stored.insert(kept.unwrap_or_else(|| LatchRecord {
        count: arrival.count,
        arrived: BTreeSet::new(),
        expires_at,
    }));
    check_count(latch.status(), arrival.count)?;
    if !latch.status().is_open() && latch.arrived.insert(arrival.id.clone()) {
        latch.expires_at = latch.expires_at.max(expires_at);
    }
    Ok(latch.status())
}

/// Removes the record of a latch. Returns whether there was one. It expires like any other: an expired one is none.
///
/// # Errors
///
/// [`LatchRefusal::Lock`]; nothing is changed.
pub fn reset(
    lock: &Record,
    stored: &mut Option<LatchRecord>,
    now: StoreTime,
) -> Result<bool, LatchRefusal> {
    check_lock(lock, now)?;
    Ok(stored.take().is_some_and(|latch| latch.is_kept(now)))
}

/// Checks that no lease holds the lock with the name of a latch.
///
/// # Errors
///
/// [`LatchRefusal::Lock`] otherwise.
pub fn check_lock(lock: &Record, now: StoreTime) -> Result<(), LatchRefusal> {
    match lock.holder(now) {
        Some(_) => Err(LatchRefusal::Lock),
        None => Ok(()),
    }
}

/// Checks that a latch has the count that is requested.
///
/// # Errors
///
/// [`LatchRefusal::Count`] otherwise.
pub fn check_count(stored: LatchStatus, requested: LatchCount) -> Result<(), LatchRefusal> {
    let (stored, requested) = (stored.count, requested.get());
    match stored == requested {
        true => Ok(()),
        false => Err(LatchRefusal::Count { stored, requested }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{ClientId, LeaseId};
    use crate::mutex::RecordHolder;

    const TTL: Duration = Duration::from_micros(10);

    fn at(micros: u64) -> StoreTime {
        StoreTime::from_micros(micros)
    }

    fn arrival(id: &str, count: u32) -> Arrival {
        Arrival {
            id: ArrivalId::parse(id).unwrap(),
            count: LatchCount::new(count).unwrap(),
            ttl: TTL,
        }
    }

    /// Applies an arrival where no lock is held.
    fn arrive_at(
        stored: &mut Option<LatchRecord>,
        arrival: &Arrival,
        now: u64,
    ) -> Result<(u32, bool), LatchRefusal> {
        let status = arrive(&Record::default(), stored, arrival, at(now))?;
        assert_eq!(stored.as_ref().map(LatchRecord::status), Some(status));
        assert_eq!(status.missing() == 0, status.is_open());
        Ok((status.arrived, status.is_open()))
    }

    #[test]
    fn each_id_counts_once_and_the_latch_opens_at_its_count() {
        let mut latch = None;
        for (id, expected) in [
            ("a", (1, false)),
            ("a", (1, false)),
            ("b", (2, false)),
            ("a", (2, false)),
            ("c", (3, true)),
            // Later ones are harmless, and are not stored.
            ("d", (3, true)),
            ("a", (3, true)),
        ] {
            assert_eq!(arrive_at(&mut latch, &arrival(id, 3), 0), Ok(expected));
        }
        assert_eq!(latch.unwrap().arrived.len(), 3);
        assert_eq!(arrive_at(&mut None, &arrival("a", 1), 0), Ok((1, true)));
    }

    #[test]
    fn only_an_arrival_that_counts_lengthens_the_time_and_none_shortens_it() {
        let mut latch = None;
        for (now, id, ttl, expires_at) in [
            (0, "a", 10, 10),
            (5, "a", 10, 10),
            (6, "b", 10, 16),
            (7, "c", 1, 16),
            // It is open.
            (8, "d", 10, 16),
            (15, "a", 10, 16),
        ] {
            let arrival = Arrival {
                ttl: Duration::from_micros(ttl),
                ..arrival(id, 3)
            };
            arrive_at(&mut latch, &arrival, now).unwrap();
            assert_eq!(latch.as_ref().unwrap().expires_at, at(expires_at), "{id}");
        }
        // Then it is made anew, with whatever count.
        assert_eq!(arrive_at(&mut latch, &arrival("e", 2), 16), Ok((1, false)));
    }

    #[test]
    fn another_count_is_refused_and_changes_nothing() {
        let mut latch = None;
        arrive_at(&mut latch, &arrival("a", 3), 0).unwrap();
        let before = latch.clone();
        for count in [1, 2, 4] {
            let refused = arrive_at(&mut latch, &arrival("b", count), 5).unwrap_err();
            let (stored, requested) = (3, count);
            assert_eq!(refused, LatchRefusal::Count { stored, requested });
            let text = refused.to_string();
            assert!(text.contains(&format!("3, not {count};")), "{text}");
        }
        assert_eq!(latch, before);
    }

    #[test]
    fn a_lock_that_is_held_refuses_a_latch_of_its_name() {
        let client = ClientId::from_random([7; 16]);
        // Number 0: the lock is kept taken after a release.
        for number in [0, 1] {
            let lock = Record {
                hold: Some(RecordHolder {
                    lease: LeaseId { client, number },
                    count: NonZeroU32::MIN,
                    expires_at: at(10),
                }),
                ..Record::default()
            };
            let mut latch = None;
            let refused = Err(LatchRefusal::Lock);
            let arrival = arrival("a", 1);
            assert_eq!(arrive(&lock, &mut latch, &arrival, at(9)), refused);
            assert_eq!(reset(&lock, &mut latch, at(9)), Err(LatchRefusal::Lock));
            assert_eq!(latch, None);
            assert!(arrive(&lock, &mut latch, &arrival, at(10)).is_ok());
            assert_eq!(reset(&lock, &mut latch, at(10)), Ok(true));
        }
    }

    #[test]
    fn a_reset_removes_what_has_not_expired() {
        let free = Record::default();
        let mut latch = None;
        assert_eq!(reset(&free, &mut latch, at(0)), Ok(false));
        for (now, existed) in [(9, true), (10, false)] {
            arrive_at(&mut latch, &arrival("a", 2), 0).unwrap();
            assert_eq!(reset(&free, &mut latch, at(now)), Ok(existed));
            assert_eq!(latch, None);
        }
    }

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
