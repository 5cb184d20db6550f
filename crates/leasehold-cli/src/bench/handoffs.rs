//! How often the library passed a lease on inside the process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// What the library calls it.
const NAME: &str = "leasehold_handoffs_total";

static HANDOFFS: LazyLock<Arc<AtomicU64>> = LazyLock::new(Arc::default);

/// Begins to count. Other metrics stay as free as they are where nobody counts.
pub(super) fn count() {
    // Set already by an earlier run in this process, or by nobody else.
    let _ = metrics::set_global_recorder(Handoffs);
}

/// How many there were since counting began.
pub(super) fn so_far() -> u64 {
    HANDOFFS.load(Ordering::Relaxed)
}

struct Handoffs;

impl Recorder for Handoffs {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        if key.name() == NAME {
            Counter::from_arc(Arc::clone(&HANDOFFS))
        } else {
            Counter::noop()
        }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_handoffs_are_counted() {
        count();
        count();
        let before = so_far();
        metrics::counter!(NAME).increment(3);
        let many = 1 << 40;
        metrics::counter!("leasehold_renewals_total").increment(many);
        // Other tests of this process may pass leases on, too.
        let counted = so_far() - before;
        assert!((3..many).contains(&counted), "{counted}");
    }
}
