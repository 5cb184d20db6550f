//! How durable a grant or renewal must be before it takes effect.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

/// How durable a grant or renewal must be before it takes effect.
///
/// Replicas copy the changes of their master a moment later. If the master dies in that moment, the grant is
/// lost, and a promoted replica grants the lock again. With [`Durability::Replicas`] a grant or renewal takes
/// effect when a number of replicas have acknowledged it (`WAIT`). Each costs a round trip between the servers.
///
/// A grant that was not acknowledged in time is released, and the acquisition fails with
/// [`ErrorKind::NotReplicated`](crate::ErrorKind::NotReplicated). A renewal that was not acknowledged has
/// failed: the lease is in jeopardy with [`Cause::NotReplicated`](crate::Cause::NotReplicated), and lost if
/// the next renewals also fail.
///
/// Only a Redis server with replicas supports it. With all replicas, no failover of Redis Sentinel loses a lock; with
/// fewer, a failover can. `docs/guarantees.md` of the repository has the details.
///
/// ```
/// use std::time::Duration;
///
/// use leasehold::{Durability, LeaseOptions, ReplicaCount};
///
/// let both = Durability::Replicas {
///     count: ReplicaCount::All,
///     timeout: Duration::from_millis(500),
/// };
/// let durable = LeaseOptions::new().durability(both);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// No replica acknowledges: the server that applied it suffices.
    #[default]
    None,
    /// Replicas acknowledge.
    Replicas {
        /// The number of replicas.
        count: ReplicaCount,
        /// The timeout, from 1 ms to the interval between renewals of the lease, by default a third of its ttl.
        timeout: Duration,
    },
}

/// The number of replicas that must acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReplicaCount {
    /// This number of any replicas.
    Number(NonZeroU32),
    /// The largest number of connected replicas that the client has seen. If one disappears, nothing is acknowledged until
    /// it is back or the client is created again.
    All,
}

impl Durability {
    /// Whether replicas must acknowledge.
    pub(crate) const fn is_replicated(&self) -> bool {
        matches!(self, Self::Replicas { .. })
    }

    /// The number of replicas that must acknowledge.
    pub(crate) fn count(self) -> Option<ReplicaCount> {
        match self {
            Self::None => None,
            Self::Replicas { count, .. } => Some(count),
        }
    }

    /// The one of two that needs more replicas.
    pub(crate) fn or_stricter(self, other: Self) -> Self {
        let number = |durability: Self| match durability.count() {
            None => 0,
            Some(ReplicaCount::Number(number)) => number.get(),
            Some(ReplicaCount::All) => u32::MAX,
        };
        match number(other) > number(self) {
            true => other,
            false => self,
        }
    }
}

#[doc(hidden)]
impl fmt::Display for ReplicaCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::All => f.write_str("all"),
        }
    }
}

/// The error of a text that is not a number of replicas.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplicaCountError;

impl fmt::Display for ReplicaCountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the number of replicas must be 1 or more, or all")
    }
}

impl std::error::Error for ReplicaCountError {}

#[doc(hidden)]
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
