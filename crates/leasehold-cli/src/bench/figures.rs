//! What was counted, and the figures in it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::{CreationError, Histogram};
use serde::Serialize;

/// The longest time that is told apart from longer ones.
const LONGEST: Duration = Duration::from_secs(60);

/// Three digits: ratios of times are read to the second.
const DIGITS: u8 = 3;

/// What one side did in all its slices.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) pairs: u64,
    pub(super) busy: Duration,
    /// `None`: the store has nothing to count.
    pub(super) calls: Option<u64>,
    pub(super) times: Arc<Mutex<Times>>,
}

/// How long each lock and release took.
#[derive(Debug)]
pub(super) struct Times(Histogram<u64>);

/// What a person wants to know of a side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Figures {
    pub(super) acquisitions_per_second: f64,
    pub(super) p50_us: f64,
    pub(super) p95_us: f64,
    pub(super) p99_us: f64,
    /// Script calls at Redis, transactions in SQLite; nothing to count in memory.
    pub(super) commands_per_acquisition: Option<f64>,
}

impl Tally {
    pub(super) fn new() -> Result<Self, CreationError> {
        let longest = u64::try_from(LONGEST.as_nanos()).unwrap_or(u64::MAX);
        let times = Times(Histogram::new_with_bounds(1, longest, DIGITS)?);
        Ok(Self {
            pairs: 0,
            busy: Duration::ZERO,
            calls: None,
            times: Arc::new(Mutex::new(times)),
        })
    }

    pub(super) fn figures(&self) -> Figures {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let micros = |quantile| round(nanos(times.0.value_at_quantile(quantile)) / 1e3);
        // At least one: every worker does one in every slice it starts in time.
        #[allow(clippy::cast_precision_loss)]
        let pairs = self.pairs.max(1) as f64;
        Figures {
            acquisitions_per_second: round(pairs / self.busy.as_secs_f64().max(1e-9)),
            p50_us: micros(0.5),
            p95_us: micros(0.95),
            p99_us: micros(0.99),
            commands_per_acquisition: self.calls.map(|calls| round(nanos(calls) / pairs)),
        }
    }
}

impl Times {
    pub(super) fn record(&mut self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(time);
    }
}

/// Three places are more than any of these is sure of.
pub(super) fn round(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

#[allow(clippy::cast_precision_loss)]
fn nanos(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_what_was_counted() {
        let mut tally = Tally::new().unwrap();
        tally.pairs = 100;
        tally.busy = Duration::from_millis(500);
        tally.calls = Some(150);
        for micros in 1..=100 {
            let mut times = tally.times.lock().unwrap();
            times.record(Duration::from_micros(micros));
        }
        let figures = tally.figures();
        assert_eq!(figures.acquisitions_per_second, 200.0);
        assert_eq!(figures.commands_per_acquisition, Some(1.5));
        for (figure, expected) in [
            (figures.p50_us, 50.0),
            (figures.p95_us, 95.0),
            (figures.p99_us, 99.0),
        ] {
            assert!((figure - expected).abs() / expected < 0.001, "{figure}");
        }
    }

    #[test]
    fn a_time_beyond_the_longest_is_counted_as_the_longest() {
        let tally = Tally::new().unwrap();
        tally.times.lock().unwrap().record(Duration::from_secs(600));
        let minute_us = 60e6;
        assert!(tally.figures().p99_us >= minute_us);
    }
}
