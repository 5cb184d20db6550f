//! Durations: counted, merged, sent to another process.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use crate::clock;
use crate::format::round;

/// The longest duration that is distinguished from longer ones.
const LONGEST: Duration = Duration::from_secs(60);

/// Three digits: ratios of quantiles are read to the second.
const DIGITS: u8 = 3;

/// A histogram of durations.
///
/// In JSON it is pairs of a duration in nanoseconds and its count; nothing is lost on the way.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Latencies(Histogram<u64>);

impl Default for Latencies {
    #[expect(clippy::expect_used, reason = "the bounds are constants")]
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, clock::nanos(LONGEST), DIGITS);
        Self(histogram.expect("the bounds are in order"))
    }
}

impl Latencies {
    pub(crate) fn record(&mut self, duration: Duration) {
        self.record_nanos(clock::nanos(duration), 1);
    }

    pub(crate) fn record_nanos(&mut self, nanos: u64, count: u64) {
        self.0.saturating_record_n(nanos, count);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        // They all have the same bounds.
        self.0 += &other.0;
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// In microseconds; 0 if nothing was counted.
    pub(crate) fn quantile_us(&self, quantile: f64) -> f64 {
        micros(self.0.value_at_quantile(quantile))
    }

    /// Count, median, 99th percentile and longest. `None`: nothing was counted.
    pub(crate) fn spread(&self) -> Option<Value> {
        (self.count() > 0).then(|| {
            json!({
                "count": self.count(),
                "p50_us": self.quantile_us(0.5),
                "p99_us": self.quantile_us(0.99),
                "max_us": micros(self.0.max()),
            })
        })
    }

    fn pairs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let recorded = self.0.iter_recorded();
        recorded.map(|value| (value.value_iterated_to(), value.count_at_value()))
    }
}

impl Serialize for Latencies {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.pairs())
    }
}

impl<'de> Deserialize<'de> for Latencies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut latencies = Self::default();
        for (nanos, count) in Vec::deserialize(deserializer)? {
            latencies.record_nanos(nanos, count);
        }
        Ok(latencies)
    }
}

/// Locks what tasks record in: no panic leaves it half changed.
pub(crate) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn micros(nanos: u64) -> f64 {
    round(nanos as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_duration_and_none_are_counted() {
        let mut latencies = Latencies::default();
        let none = (latencies.quantile_us(0.5), latencies.spread());
        assert_eq!(none, (0.0, None));
        latencies.record(Duration::from_secs(600));
        assert!(latencies.quantile_us(0.99) >= 60e6);
    }

    #[test]
    fn latencies_are_the_same_in_another_process() {
        let mut latencies = Latencies::default();
        for nanos in (0..10_000).map(|n| n * n) {
            latencies.record_nanos(nanos, 1);
        }
        let line = serde_json::to_string(&latencies).unwrap();
        let read: Latencies = serde_json::from_str(&line).unwrap();
        assert_eq!(read, latencies);

        let mut both = read;
        both.add(&latencies);
        assert_eq!(both.count(), 20_000);
        for quantile in [0.0, 0.5, 0.9, 0.99, 1.0] {
            assert_eq!(both.quantile_us(quantile), latencies.quantile_us(quantile));
        }
    }
}
