//! How long things took: counted, merged, sent to another process.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::clock;
use super::figures::round;
use crate::exit::Failure;

/// The longest time that is told apart from longer ones.
const LONGEST: Duration = Duration::from_secs(60);

/// Three digits: ratios of times are read to the second.
const DIGITS: u8 = 3;

/// How long things took.
///
/// To another process it goes as pairs of a time and how often it was seen; nothing is lost on the
/// way.
#[derive(Clone, Debug)]
pub(super) struct Times(Histogram<u64>);

impl Times {
    pub(super) fn new() -> Result<Self, Failure> {
        let histogram = Histogram::new_with_bounds(1, clock::nanos(LONGEST), DIGITS);
        histogram
            .map(Self)
            .map_err(|error| Failure::own("the times cannot be counted", error))
    }

    pub(super) fn record(&mut self, time: Duration) {
        self.record_nanos(clock::nanos(time), 1);
    }

    pub(super) fn record_many(&mut self, time: Duration, times: u64) {
        self.record_nanos(clock::nanos(time), times);
    }

    pub(super) fn record_nanos(&mut self, nanos: u64, times: u64) {
        self.0.saturating_record_n(nanos, times);
    }

    pub(super) fn add(&mut self, other: &Self) {
        // They all have the same bounds.
        for (nanos, times) in other.pairs() {
            self.record_nanos(nanos, times);
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    /// In microseconds; 0 if nothing was counted.
    pub(super) fn quantile_us(&self, quantile: f64) -> f64 {
        micros(self.0.value_at_quantile(quantile))
    }

    /// In microseconds; 0 if nothing was counted.
    pub(super) fn max_us(&self) -> f64 {
        micros(self.0.max())
    }

    fn pairs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let recorded = self.0.iter_recorded();
        recorded.map(|value| (value.value_iterated_to(), value.count_at_value()))
    }
}

impl Serialize for Times {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.pairs())
    }
}

impl<'de> Deserialize<'de> for Times {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pairs = Vec::<(u64, u64)>::deserialize(deserializer)?;
        let mut times = Self::new().map_err(|_| D::Error::custom("the times cannot be counted"))?;
        for (nanos, count) in pairs {
            times.record_nanos(nanos, count);
        }
        Ok(times)
    }
}

#[allow(clippy::cast_precision_loss)]
fn micros(nanos: u64) -> f64 {
    round(nanos as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_beyond_the_longest_is_counted_as_the_longest() {
        let mut times = Times::new().unwrap();
        times.record(Duration::from_secs(600));
        let minute_us = 60e6;
        assert!(times.quantile_us(0.99) >= minute_us);
    }

    #[test]
    fn times_are_the_same_in_another_process() {
        let mut times = Times::new().unwrap();
        for nanos in (0..10_000).map(|n| n * n) {
            times.record_nanos(nanos, 1);
        }
        let line = serde_json::to_string(&times).unwrap();
        let read: Times = serde_json::from_str(&line).unwrap();
        assert_eq!(read.0, times.0);

        let mut both = read;
        both.add(&times);
        assert_eq!(both.count(), 20_000);
        for quantile in [0.0, 0.5, 0.9, 0.99, 1.0] {
            assert_eq!(both.quantile_us(quantile), times.quantile_us(quantile));
        }
        assert_eq!(both.max_us(), times.max_us());
    }

    #[test]
    fn no_times_are_zero() {
        let times = Times::new().unwrap();
        assert_eq!((times.quantile_us(0.5), times.max_us()), (0.0, 0.0));
    }
}
