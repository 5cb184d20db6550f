//! The metrics of clients: their descriptions, and those that are more than one line where they are counted.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold_core::Cause;
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge};

use super::primitives::report;
use crate::Completion;

/// The causes of jeopardy.
const JEOPARDY: [Cause; 4] = [
    Cause::Unreachable,
    Cause::NotReplicated,
    Cause::Paused,
    Cause::HeldTooLong,
];

/// The causes of losses, besides those of jeopardy. A release is not a loss.
const LOSSES: [Cause; 5] = [
    Cause::Expired,
    Cause::TakenOver,
    Cause::Deleted,
    Cause::Revoked,
    Cause::OtherProcess,
];

/// Why an acquisition ended without the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AcquireFailure {
    /// Another holds it, and the task does not wait.
    Refused,
    /// Another held it until the end of the wait.
    Timeout,
    Error,
}

/// Counts a task as waiting until this is dropped.
#[derive(Debug)]
pub(crate) struct WaiterMetric(());

/// The share of one client in the gauge of leases, which all clients of the process have in common.
#[derive(Debug, Default)]
pub(super) struct LeasesMetric(AtomicUsize);

/// Describes the metrics, and lets counters and gauges start at zero: for Prometheus a counter that appears with its
/// first event has not increased.
pub(super) fn register() {
    report(|| {
        describe();
        for name in [
            "leasehold_handoffs_total",
            "leasehold_leader_changes_total",
            "leasehold_release_failures_total",
            "leasehold_renewal_batches_total",
            "leasehold_renewal_failures_total",
            "leasehold_renewals_total",
            "leasehold_renewer_restarts_total",
            "leasehold_round_trips_total",
        ] {
            counter!(name).increment(0);
        }
        gauge!("leasehold_leases").increment(0.0);
        gauge!("leasehold_waiters").increment(0.0);
        for cause in JEOPARDY {
            counter!("leasehold_jeopardy_total", "cause" => cause.name()).increment(0);
        }
        for cause in LOSSES.into_iter().chain(JEOPARDY) {
            counter!("leasehold_lost_total", "cause" => cause.name()).increment(0);
        }
        for failure in [
            AcquireFailure::Refused,
            AcquireFailure::Timeout,
            AcquireFailure::Error,
        ] {
            failure.add(0);
        }
    });
}

/// Notes when the last run of a job ended that was complete, and when the next one is overdue.
pub(crate) fn report_job_success(run: &Completion) {
    let seconds = |time: SystemTime| {
        let since = time.duration_since(UNIX_EPOCH);
        since.unwrap_or_default().as_secs_f64()
    };
    report(|| {
        gauge!("leasehold_job_last_success_timestamp_seconds", "name" => run.name.clone())
            .set(seconds(run.finished));
        if let Some(overdue_at) = run.overdue_at() {
            gauge!("leasehold_job_overdue_timestamp_seconds", "name" => run.name.clone())
                .set(seconds(overdue_at));
        }
    });
}

impl AcquireFailure {
    /// Counts one.
    pub(crate) fn count(self) {
        report(|| self.add(1));
    }

    fn add(self, count: u64) {
        let reason = match self {
            Self::Refused => "refused",
            Self::Timeout => "timeout",
            Self::Error => "error",
        };
        counter!("leasehold_acquire_failures_total", "reason" => reason).increment(count);
    }
}

impl WaiterMetric {
    pub(crate) fn begin() -> Self {
        report(|| gauge!("leasehold_waiters").increment(1.0));
        Self(())
    }
}

impl Drop for WaiterMetric {
    fn drop(&mut self) {
        report(|| gauge!("leasehold_waiters").decrement(1.0));
    }
}

impl LeasesMetric {
    pub(super) fn set(&self, leases: usize) {
        let before = self.0.swap(leases, Ordering::Relaxed);
        report(|| gauge!("leasehold_leases").increment(leases as f64 - before as f64));
    }
}

impl Drop for LeasesMetric {
    fn drop(&mut self) {
        self.set(0);
    }
}

fn describe() {
    describe_gauge!("leasehold_leases", "leases that the renewers renew");
    describe_gauge!("leasehold_waiters", "tasks that wait for a lock");
    describe_gauge!(
        "leasehold_job_last_success_timestamp_seconds",
        Unit::Seconds,
        "when the last run of a job ended that said it was complete, by job"
    );
    describe_gauge!(
        "leasehold_job_overdue_timestamp_seconds",
        Unit::Seconds,
        "when the next run of a periodic job is overdue, by job"
    );
    describe_histogram!(
        "leasehold_acquire_wait_seconds",
        Unit::Seconds,
        "from the call to the grant"
    );
    describe_histogram!(
        "leasehold_hold_seconds",
        Unit::Seconds,
        "from the grant to the release"
    );
    describe_histogram!(
        "leasehold_renewal_lag_seconds",
        Unit::Seconds,
        "from the instant at which a batch of renewals was due until it was sent"
    );
    describe_counter!(
        "leasehold_acquire_failures_total",
        "acquisitions that ended without the lock, by reason"
    );
    describe_counter!(
        "leasehold_handoffs_total",
        "hand-offs of leases between tasks, without a round trip"
    );
    describe_counter!("leasehold_jeopardy_total", "leases in jeopardy, by cause");
    describe_counter!(
        "leasehold_leader_changes_total",
        "leaderships that began in this process"
    );
    describe_counter!("leasehold_lost_total", "lost leases, by cause");
    describe_counter!(
        "leasehold_release_failures_total",
        "releases that the store did not confirm before the lease expired"
    );
    describe_counter!("leasehold_renewals_total", "renewals with a reply");
    describe_counter!(
        "leasehold_renewal_failures_total",
        "renewals without a reply"
    );
    describe_counter!("leasehold_renewal_batches_total", "batches of renewals");
    describe_counter!(
        "leasehold_renewer_restarts_total",
        "panics that the renewer survived"
    );
    describe_counter!("leasehold_round_trips_total", "batches sent to the store");
    #[cfg(feature = "watchdog")]
    describe_gauge!(
        "leasehold_watchdog_connected",
        "1 while the node of the watchdog is connected"
    );
}
