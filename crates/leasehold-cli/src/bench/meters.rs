//! What the library counts of itself, heard inside this process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

use super::times::Times;
use crate::exit::Failure;

pub(super) static HANDOFFS: Meter = Meter::new("leasehold_handoffs_total");
pub(super) static RENEWALS: Meter = Meter::new("leasehold_renewals_total");
pub(super) static RENEWAL_BATCHES: Meter = Meter::new("leasehold_renewal_batches_total");
pub(super) static JEOPARDY: Meter = Meter::new("leasehold_jeopardy_total");
pub(super) static LOST: Meter = Meter::new("leasehold_lost_total");

/// How long after they were due renewals were sent.
pub(super) static RENEWAL_LAG: Watch = Watch::new("leasehold_renewal_lag_seconds");

static METERS: [&Meter; 5] = [&HANDOFFS, &RENEWALS, &RENEWAL_BATCHES, &JEOPARDY, &LOST];

/// Begins to listen. Other metrics stay as free as they are where nobody listens.
pub(super) fn listen() {
    // Set already by an earlier run in this process, or by nobody else.
    let _ = metrics::set_global_recorder(Meters);
}

/// One of the library's counters, whatever its labels say.
pub(super) struct Meter {
    name: &'static str,
    count: LazyLock<Arc<AtomicU64>>,
}

impl Meter {
    const fn new(name: &'static str) -> Self {
        Self {
            name,
            count: LazyLock::new(Arc::default),
        }
    }

    /// How much was counted since listening began.
    pub(super) fn so_far(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// One of the library's histograms of seconds, whatever its labels say.
pub(super) struct Watch {
    name: &'static str,
    times: LazyLock<Arc<Kept>>,
}

impl Watch {
    const fn new(name: &'static str) -> Self {
        Self {
            name,
            times: LazyLock::new(Arc::default),
        }
    }

    /// The times since this was asked last.
    pub(super) fn take(&self) -> Result<Times, Failure> {
        let fresh = Times::new()?;
        match self.times.lock().replace(fresh) {
            Some(times) => Ok(times),
            None => Times::new(),
        }
    }
}

/// Keeps times once somebody has asked for them.
#[derive(Default)]
struct Kept(Mutex<Option<Times>>);

impl Kept {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Times>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HistogramFn for Kept {
    fn record(&self, value: f64) {
        self.record_many(value, 1);
    }

    fn record_many(&self, value: f64, count: usize) {
        let Ok(time) = Duration::try_from_secs_f64(value) else {
            return;
        };
        if let Some(times) = self.lock().as_mut() {
            times.record_many(time, u64::try_from(count).unwrap_or(u64::MAX));
        }
    }
}

struct Meters;

impl Recorder for Meters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let meter = METERS.iter().find(|meter| meter.name == key.name());
        meter.map_or_else(Counter::noop, |meter| {
            Counter::from_arc(Arc::clone(&meter.count))
        })
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        if key.name() == RENEWAL_LAG.name {
            Histogram::from_arc(Arc::clone(&RENEWAL_LAG.times))
        } else {
            Histogram::noop()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_meter_counts_what_has_its_name() {
        listen();
        listen();
        let before = METERS.map(Meter::so_far);
        let many = 1 << 40;
        metrics::counter!("leasehold_round_trips_total").increment(many);
        for (meter, count) in METERS.iter().zip(3..) {
            metrics::counter!(meter.name, "cause" => "one").increment(1);
            metrics::counter!(meter.name, "cause" => "another").increment(count - 1);
        }
        for ((meter, before), count) in METERS.iter().zip(before).zip(3..) {
            // Other tests of this process may count, too.
            let counted = meter.so_far() - before;
            assert!((count..many).contains(&counted), "{}", meter.name);
        }
    }

    /// Nobody else in this process renews anything, or asks.
    #[test]
    fn times_are_kept_from_the_first_look_to_the_next() {
        listen();
        let lag = || metrics::histogram!(RENEWAL_LAG.name);
        lag().record(1.0);
        assert_eq!(RENEWAL_LAG.take().unwrap().count(), 0);
        lag().record(Duration::from_millis(20));
        lag().record_many(0.01, 3);
        lag().record(-1.0);
        lag().record(f64::NAN);
        metrics::histogram!("leasehold_hold_seconds").record(5.0);
        let times = RENEWAL_LAG.take().unwrap();
        assert_eq!(times.count(), 4);
        assert!((times.max_us() / 20_000.0 - 1.0).abs() < 0.002);
        assert!((times.quantile_us(0.5) / 10_000.0 - 1.0).abs() < 0.002);
        assert_eq!(RENEWAL_LAG.take().unwrap().count(), 0);
    }
}
