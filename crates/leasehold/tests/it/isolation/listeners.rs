//! Parts of a program that may panic: a metrics recorder, a log subscriber, a clock.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use leasehold::__private::store::BoxFuture;
use leasehold::clock::{Clock, ManualClock};
use leasehold_core::Instant;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use tracing::span;

/// Counts, or panics at every metric.
#[derive(Default)]
pub(crate) struct Metrics {
    /// By name and value of the label.
    counts: Mutex<HashMap<(String, String), Arc<AtomicU64>>>,
    gauges: Mutex<HashMap<String, Arc<AtomicU64>>>,
    panics: bool,
}

impl Metrics {
    pub(crate) fn panicking() -> Self {
        Self {
            panics: true,
            ..Self::default()
        }
    }

    /// The names of all counters.
    pub(crate) fn counters(&self) -> BTreeSet<String> {
        let counts = self.counts.lock().unwrap();
        counts.keys().map(|(name, _)| name.clone()).collect()
    }

    /// A count with any label.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.sum(|counter, _| counter == name)
    }

    pub(crate) fn count_of(&self, name: &str, label: &str) -> u64 {
        self.sum(|counter, of| counter == name && of == label)
    }

    fn sum(&self, selected: impl Fn(&str, &str) -> bool) -> u64 {
        let counts = self.counts.lock().unwrap();
        let counts = counts.iter();
        let counts = counts.filter(|((name, label), _)| selected(name, label));
        counts.map(|(_, count)| count.load(Ordering::SeqCst)).sum()
    }

    pub(crate) fn gauge(&self, name: &str) -> f64 {
        let gauges = self.gauges.lock().unwrap();
        f64::from_bits(gauges[name].load(Ordering::SeqCst))
    }
}

impl Recorder for Metrics {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        assert!(!self.panics, "no counter {key}");
        let mut counts = self.counts.lock().unwrap();
        let label = key.labels().next().map_or("", |label| label.value());
        let counter = (key.name().to_owned(), label.to_owned());
        let count = counts.entry(counter).or_default();
        Counter::from_arc(Arc::clone(count))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        assert!(!self.panics, "no gauge {key}");
        let mut gauges = self.gauges.lock().unwrap();
        let gauge = gauges.entry(key.name().to_owned()).or_default();
        Gauge::from_arc(Arc::clone(gauge))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        assert!(!self.panics, "no histogram {key}");
        Histogram::noop()
    }
}

/// Calls a function with everything that is logged.
pub(crate) struct Logs<F>(pub(crate) F);

impl<F: Fn(&tracing::Event<'_>) + Send + Sync + 'static> tracing::Subscriber for Logs<F> {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        unreachable!("the library has no spans")
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        self.0(event);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// A clock that panics at certain calls.
#[derive(Debug)]
pub(crate) struct ShakyClock {
    inner: ManualClock,
    panics: Mutex<(u64, u64)>,
}

impl ShakyClock {
    pub(crate) fn new(inner: ManualClock) -> Self {
        Self {
            inner,
            panics: Mutex::default(),
        }
    }

    /// The next `before` calls succeed, and the `count` calls after them panic.
    pub(crate) fn panic_at(&self, before: u64, count: u64) {
        *self.panics.lock().unwrap() = (before, count);
    }

    fn panics(&self) -> bool {
        let mut panics = self.panics.lock().unwrap();
        let (before, count) = &mut *panics;
        let panics = *before == 0 && *count > 0;
        *before = before.saturating_sub(1);
        *count -= u64::from(panics);
        panics
    }
}

impl Clock for ShakyClock {
    fn now(&self) -> Instant {
        assert!(!self.panics(), "the clock panics");
        self.inner.now()
    }

    fn sleep_until(&self, instant: Instant) -> BoxFuture<'_, ()> {
        self.inner.sleep_until(instant)
    }
}
