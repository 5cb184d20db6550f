//! The metrics of the library, recorded inside this process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

use crate::latencies::{Latencies, lock};

pub(crate) static ROUND_TRIPS: Total = Total::new("leasehold_round_trips_total");
pub(crate) static HANDOFFS: Total = Total::new("leasehold_handoffs_total");
pub(crate) static RENEWALS: Total = Total::new("leasehold_renewals_total");
pub(crate) static RENEWAL_BATCHES: Total = Total::new("leasehold_renewal_batches_total");
pub(crate) static JEOPARDY: Total = Total::new("leasehold_jeopardy_total");
pub(crate) static LOST: Total = Total::new("leasehold_lost_total");

static TOTALS: [&Total; 6] = [
    &ROUND_TRIPS,
    &HANDOFFS,
    &RENEWALS,
    &RENEWAL_BATCHES,
    &JEOPARDY,
    &LOST,
];

const RENEWAL_LAG: &str = "leasehold_renewal_lag_seconds";

static RENEWAL_LAGS: LazyLock<Arc<Lags>> = LazyLock::new(Arc::default);

/// Records from now on. Other metrics stay as free as they are without a recorder.
pub(crate) fn install() {
    // Fails only if an earlier run in this process has set it.
    let _ = metrics::set_global_recorder(LibraryRecorder);
}

/// The lags of renewals since the last call; empty at the first, from which on they are kept.
pub(crate) fn take_renewal_lags() -> Latencies {
    let lags = lock(&RENEWAL_LAGS.0).replace(Latencies::default());
    lags.unwrap_or_default()
}

/// A counter of the library, whatever its labels.
pub(crate) struct Total {
    name: &'static str,
    count: LazyLock<Arc<AtomicU64>>,
}

impl Total {
    const fn new(name: &'static str) -> Self {
        Self {
            name,
            count: LazyLock::new(Arc::default),
        }
    }

    /// The count since the recorder was installed.
    pub(crate) fn value(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
struct Lags(Mutex<Option<Latencies>>);

impl HistogramFn for Lags {
    fn record(&self, seconds: f64) {
        let lag = Duration::try_from_secs_f64(seconds);
        if let (Ok(lag), Some(lags)) = (lag, lock(&self.0).as_mut()) {
            lags.record(lag);
        }
    }
}

struct LibraryRecorder;

impl Recorder for LibraryRecorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let total = TOTALS.iter().find(|total| total.name == key.name());
        total.map_or_else(Counter::noop, |total| {
            Counter::from_arc(Arc::clone(&total.count))
        })
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match key.name() {
            RENEWAL_LAG => Histogram::from_arc(Arc::clone(&RENEWAL_LAGS)),
            _ => Histogram::noop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_total_counts_the_metric_of_its_name() {
        install();
        install();
        let before = TOTALS.map(Total::value);
        let many = 1 << 40;
        metrics::counter!("leasehold_renewal_failures_total").increment(many);
        for (total, count) in TOTALS.iter().zip(3..) {
            metrics::counter!(total.name, "cause" => "one").increment(1);
            metrics::counter!(total.name, "cause" => "another").increment(count - 1);
        }
        for ((total, before), count) in TOTALS.iter().zip(before).zip(3..) {
            // Other tests of this process may count, too.
            let counted = total.value() - before;
            assert!((count..many).contains(&counted), "{}", total.name);
        }
    }

    /// Nothing else in this process renews leases.
    #[test]
    fn lags_are_kept_from_one_call_to_the_next() {
        install();
        let lag = || metrics::histogram!(RENEWAL_LAG);
        lag().record(1.0);
        assert_eq!(take_renewal_lags().count(), 0);
        lag().record(Duration::from_millis(20));
        lag().record_many(0.01, 3);
        lag().record(-1.0);
        lag().record(f64::NAN);
        metrics::histogram!("leasehold_hold_seconds").record(5.0);
        let lags = take_renewal_lags();
        assert_eq!(lags.count(), 4);
        assert!((lags.quantile_us(1.0) / 20_000.0 - 1.0).abs() < 0.002);
        assert!((lags.quantile_us(0.5) / 10_000.0 - 1.0).abs() < 0.002);
        assert_eq!(take_renewal_lags().count(), 0);
    }
}
