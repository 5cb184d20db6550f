//! The metrics of a client.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;

use leasehold::clock::Clock as _;

use crate::faulty_store::FaultMode;
use crate::harness::{Harness, SECOND, TTL, poll_once};
use crate::isolation::listeners::Metrics;

const FAILURES: &str = "leasehold_acquire_failures_total";
const RELEASES: &str = "leasehold_release_failures_total";

impl Harness {
    /// Lets the time go on until a future is ready.
    async fn complete<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let end = self.clock.now().after(TTL * 3);
        loop {
            if let Some(output) = poll_once(future.as_mut()).await {
                return output;
            }
            assert!(self.clock.now() < end);
            self.advance(SECOND / 10).await;
        }
    }
}

#[tokio::test]
async fn every_counter_starts_at_zero() {
    let metrics = Metrics::default();
    let _recorder = metrics::set_default_local_recorder(&metrics);
    let _harness = Harness::new();
    let documentation = include_str!("../../../../docs/operations.md");
    let (_, rest) = documentation.split_once("## Metrics\n").unwrap();
    let (table, _) = rest.split_once("\n## ").unwrap();
    let words = table.split(|c: char| !c.is_ascii_lowercase() && c != '_');
    // Those of a watchdog's node are not those of a client.
    let counters =
        words.filter(|word| word.ends_with("_total") && !word.starts_with("leasehold_watchdog"));
    let counters: BTreeSet<_> = counters.map(str::to_owned).collect();
    assert_eq!(metrics.counters(), counters);
    for counter in &counters {
        assert_eq!(metrics.count(counter), 0, "{counter}");
    }
}

#[tokio::test]
async fn waits_and_failures_are_counted_by_their_reason() {
    let metrics = Metrics::default();
    let _recorder = metrics::set_default_local_recorder(&metrics);
    let harness = Harness::new();
    let guard = harness.mutex().lock().await.unwrap();

    let stranger = harness.stranger();
    assert!(stranger.try_lock().await.unwrap().is_none());
    assert_eq!(metrics.count_of(FAILURES, "refused"), 1);
    {
        let mut wait = pin!(stranger.lock_timeout(SECOND));
        assert!(poll_once(wait.as_mut()).await.is_none());
        assert_eq!(metrics.gauge("leasehold_waiters"), 1.0);
        assert!(harness.complete(wait).await.unwrap().is_none());
    }
    assert_eq!(metrics.count_of(FAILURES, "timeout"), 1);

    harness.store.set(FaultMode::Unreachable);
    let other = harness.client.mutex("other").unwrap();
    {
        let mut attempt = pin!(other.try_lock());
        assert!(poll_once(attempt.as_mut()).await.is_none());
        assert_eq!(metrics.gauge("leasehold_waiters"), 0.0, "it does not wait");
        assert!(harness.complete(attempt).await.is_err());
    }
    assert_eq!(metrics.count_of(FAILURES, "error"), 1);
    assert_eq!(metrics.count(FAILURES), 3);
    assert_eq!(metrics.gauge("leasehold_waiters"), 0.0);

    assert_eq!(metrics.gauge("leasehold_leases"), 1.0);
    drop(guard);
    let end = harness.clock.now().after(TTL * 3);
    while metrics.count(RELEASES) == 0 && harness.clock.now() < end {
        harness.advance(SECOND).await;
    }
    assert_eq!(metrics.count(RELEASES), 1);
    assert_eq!(metrics.gauge("leasehold_leases"), 0.0);
}

#[tokio::test]
async fn all_clients_of_a_process_share_the_gauge_of_leases() {
    let metrics = Metrics::default();
    let _recorder = metrics::set_default_local_recorder(&metrics);
    let (first, second) = (Harness::new(), Harness::new());
    let guards = [
        first.mutex().lock().await.unwrap(),
        second.mutex().lock().await.unwrap(),
    ];
    first.advance(TTL / 3).await;
    second.advance(TTL / 3).await;
    assert_eq!(metrics.gauge("leasehold_leases"), 2.0);
    drop(guards);
    drop((first, second));
    crate::harness::settle().await;
    assert_eq!(metrics.gauge("leasehold_leases"), 0.0);
}
