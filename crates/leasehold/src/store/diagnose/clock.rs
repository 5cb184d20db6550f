//! The offset of the clock of a server.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The number of samples, of which the one with the shortest round trip counts.
pub(crate) const CLOCK_SAMPLES: u32 = 5;

/// The offset of the clock of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockFacts {
    /// How far it is ahead of ours, in microseconds.
    pub(crate) ahead: i64,
    /// The possible error: half of the shortest round trip.
    pub(crate) error: i64,
}

impl ClockFacts {
    /// The offset of a time in microseconds since 1970 that a server read at some moment between `sent` and `received`.
    /// `None`: the local clock was set back meanwhile.
    pub(crate) fn compare(sent: SystemTime, server: i64, received: SystemTime) -> Option<Self> {
        let (sent, received) = (since_epoch(sent), since_epoch(received));
        let error = (received - sent) / 2;
        (error >= 0).then_some(Self {
            ahead: server.saturating_sub(sent + error),
            error,
        })
    }

    /// The better one of two samples.
    pub(crate) fn or_better(self, other: Option<Self>) -> Self {
        match other {
            Some(other) if other.error <= self.error => other,
            _ => self,
        }
    }
}

fn since_epoch(time: SystemTime) -> i64 {
    let span = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_compared_with_the_middle_of_the_round_trip() {
        let at = |micros| UNIX_EPOCH + Duration::from_micros(micros);
        let facts = |ahead, error| Some(ClockFacts { ahead, error });
        for (sent, server, received, expected) in [
            (1_000, 1_100, 1_200, facts(0, 100)),
            (1_000, 31_100, 1_200, facts(30_000, 100)),
            (31_000, 1_100, 31_200, facts(-30_000, 100)),
            (1_200, 1_100, 1_000, None),
        ] {
            assert_eq!(
                ClockFacts::compare(at(sent), server, at(received)),
                expected
            );
        }
    }

    #[test]
    fn the_sample_with_the_shortest_round_trip_counts() {
        let facts = |ahead, error| ClockFacts { ahead, error };
        assert_eq!(facts(5, 9).or_better(None), facts(5, 9));
        assert_eq!(facts(5, 9).or_better(Some(facts(7, 3))), facts(7, 3));
        assert_eq!(facts(7, 3).or_better(Some(facts(5, 9))), facts(7, 3));
    }
}
