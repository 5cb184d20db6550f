//! What was counted, and the figures in it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

use super::times::Times;
use crate::exit::Failure;

/// What one side did in all its slices.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) pairs: u64,
    pub(super) busy: Duration,
    /// `None`: the store has nothing to count.
    pub(super) calls: Option<u64>,
    /// How long each lock and release took.
    pub(super) times: Arc<Mutex<Times>>,
}

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

/// How long something took.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Spread {
    pub(super) count: u64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) max_us: f64,
}

impl Tally {
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Self {
            pairs: 0,
            busy: Duration::ZERO,
            calls: None,
            times: Arc::new(Mutex::new(Times::new()?)),
        })
    }

    pub(super) fn figures(&self) -> Figures {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        // At least one: every worker does one in every slice it starts in time.
        let pairs = self.pairs.max(1);
        Figures {
            acquisitions_per_second: round(per(pairs, 1) / self.busy.as_secs_f64().max(1e-9)),
            p50_us: times.quantile_us(0.5),
            p95_us: times.quantile_us(0.95),
            p99_us: times.quantile_us(0.99),
            commands_per_acquisition: self.calls.map(|calls| round(per(calls, pairs))),
        }
    }
}

impl Spread {
    pub(super) fn of(times: &Times) -> Self {
        Self {
            count: times.count(),
            p50_us: times.quantile_us(0.5),
            p99_us: times.quantile_us(0.99),
            max_us: times.max_us(),
        }
    }
}

/// Three places are more than most of these are sure of.
pub(super) fn round(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

/// Five places, for parts of a whole that may be small.
pub(super) fn fine(number: f64) -> f64 {
    (number * 1e5).round() / 1e5
}

/// One count for each of another.
#[allow(clippy::cast_precision_loss)]
pub(super) fn per(count: u64, each: u64) -> f64 {
    count as f64 / each.max(1) as f64
}

/// One figure in terms of another; 0 if there is no other.
pub(super) fn ratio(figure: f64, other: f64) -> f64 {
    if other > 0.0 {
        round(figure / other)
    } else {
        0.0
    }
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
    fn nothing_is_no_division_by_zero() {
        assert_eq!((per(0, 0), ratio(1.0, 0.0)), (0.0, 0.0));
        assert_eq!((round(1.000_6), fine(0.000_016)), (1.001, 0.000_02));
    }
}
