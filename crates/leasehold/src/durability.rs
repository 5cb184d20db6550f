//! Who must have a change before it counts.

use std::cmp::Ordering;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

/// Who must have a grant or a renewal before it counts.
///
/// Replicas copy what their master does a moment later. A master that dies in that moment takes the
/// grant with it, and a replica that is promoted grants the lock again. With [`Durability::Replicas`]
/// a grant counts when so many replicas have acknowledged it (`WAIT`), and so does each renewal. That
/// costs a round trip between the servers for each.
///
/// A grant that was not acknowledged in time is given back, and taking the lock fails with
/// [`ErrorKind::NotReplicated`](crate::ErrorKind::NotReplicated). A renewal that was not is one that
/// failed: the lease is in jeopardy with
/// [`Cause::NotReplicated`](crate::Cause::NotReplicated), and lost if the next ones fail, too.
///
/// Only a Redis server with replicas can do it. What it gives and what not stands in
/// `docs/guarantees.md`: with all replicas, no failover of Redis Sentinel forgets what counts; with
/// fewer, one can.
///
/// ```
/// use std::time::Duration;
///
/// use leasehold::{Durability, ReplicaCount};
///
/// let both = Durability::Replicas {
///     count: ReplicaCount::All,
///     timeout: Duration::from_millis(500),
/// };
/// assert_ne!(both, Durability::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Durability {
    /// The server that was asked.
    #[default]
    None,
    /// Its replicas, too.
    Replicas {
        /// How many of them.
        count: ReplicaCount,
        /// How long they have for it, from 1 ms up to the time between two renewals of the lease.
        timeout: Duration,
    },
}

/// How many replicas must acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplicaCount {
    /// So many, whichever they are.
    Number(NonZeroU32),
    /// As many as the store has ever seen at once: if one goes away, nothing is acknowledged until it
    /// is back or the client is made anew.
    All,
}

impl Durability {
    /// Whether replicas have a part in it.
    #[must_use]
    pub const fn is_replicated(&self) -> bool {
        matches!(self, Self::Replicas { .. })
    }

    /// Of two, the one that asks for more replicas.
    pub(crate) fn or_stricter(self, other: Self) -> Self {
        match other.weight().cmp(&self.weight()) {
            Ordering::Greater => other,
            _ => self,
        }
    }

    fn weight(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Replicas { count, .. } => match count {
                ReplicaCount::Number(number) => number.get(),
                ReplicaCount::All => u32::MAX,
            },
        }
    }
}

impl From<NonZeroU32> for ReplicaCount {
    fn from(number: NonZeroU32) -> Self {
        Self::Number(number)
    }
}

impl fmt::Display for ReplicaCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::All => f.write_str("all"),
        }
    }
}

/// A text that is no number of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaCountError;

impl fmt::Display for ReplicaCountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the number of replicas must be 1 or more, or all")
    }
}

impl std::error::Error for ReplicaCountError {}

impl FromStr for ReplicaCount {
    type Err = ReplicaCountError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "all" => Ok(Self::All),
            number => number
                .parse()
                .map(Self::Number)
                .map_err(|_| ReplicaCountError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: &str) -> Durability {
        Durability::Replicas {
            count: count.parse().unwrap(),
            timeout: Duration::from_secs(1),
        }
    }

    #[test]
    fn more_replicas_are_stricter() {
        for (one, other, stricter) in [
            (Durability::None, of("1"), of("1")),
            (of("2"), of("1"), of("2")),
            (of("2"), of("all"), of("all")),
            (of("all"), Durability::None, of("all")),
        ] {
            assert_eq!(one.or_stricter(other), stricter);
        }
    }

    #[test]
    fn a_count_is_a_number_or_all() {
        for text in ["1", "17", "all"] {
            assert_eq!(text.parse::<ReplicaCount>().unwrap().to_string(), text);
        }
        for text in ["0", "-1", "", "ALL", "1.5", "4294967296"] {
            assert_eq!(text.parse::<ReplicaCount>(), Err(ReplicaCountError));
        }
    }
}
