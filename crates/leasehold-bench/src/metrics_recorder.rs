//! The metrics of the library, recorded inside this process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

use crate::latencies::{Latencies, lock};

pub(crate) const ROUND_TRIPS: &str = "leasehold_round_trips_total";
pub(crate) const HANDOFFS: &str = "leasehold_handoffs_total";
pub(crate) const RENEWALS: &str = "leasehold_renewals_total";
pub(crate) const RENEWAL_BATCHES: &str = "leasehold_renewal_batches_total";
pub(crate) const JEOPARDY: &str = "leasehold_jeopardy_total";
pub(crate) const LOST: &str = "leasehold_lost_total";

/// The totals, whatever their labels.
static TOTALS: LazyLock<BTreeMap<&str, Arc<AtomicU64>>> = LazyLock::new(|| {
    let names = [
        ROUND_TRIPS,
        HANDOFFS,
        RENEWALS,
        RENEWAL_BATCHES,
        JEOPARDY,
        LOST,
    ];
    names
        .into_iter()
        .map(|name| (name, Arc::default()))
        .collect()
});

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

/// The value of a total since the recorder was installed.
pub(crate) fn total(name: &str) -> u64 {
    TOTALS[name].load(Ordering::Relaxed)
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
        let total = TOTALS.get(key.name()).cloned();
        total.map_or_else(Counter::noop, Counter::from_arc)
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
        let many = 1 << 40;
        metrics::counter!("leasehold_renewal_failures_total").increment(many);
        for (name, count) in TOTALS.keys().zip(3..) {
            let before = total(name);
            metrics::counter!(*name, "cause" => "one").increment(1);
            metrics::counter!(*name, "cause" => "another").increment(count - 1);
            // Other tests of this process may also count.
            assert!((count..many).contains(&(total(name) - before)), "{name}");
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
