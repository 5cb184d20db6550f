//! Minimum holds: from when to when a released lock stays taken.

use std::pin::pin;
use std::time::Duration;

use leasehold::{ErrorKind, LeaseOptions, Mutex};

use crate::faulty_store::FaultMode;
use crate::fixture::with_options;
use crate::harness::{Harness, SECOND, TTL, poll_once, settle};
use crate::recording_store::Valve;

/// Longer than the ttl of 30 s.
const MINUTE: Duration = Duration::from_secs(60);

/// More than the drift of a minute, by which it may be longer.
const DRIFT_MAX: Duration = Duration::from_millis(700);

/// The rest of the minimum hold at the store, which no client shortens or lengthens.
async fn remaining(harness: &Harness) -> Option<Duration> {
    let holder = harness.stranger().inspect().await.unwrap()?;
    assert!(holder.min_hold, "{holder:?}");
    assert!(harness.stranger().try_lock().await.unwrap().is_none());
    Some(holder.time_left)
}

/// Checks that the minimum hold ends after the `rest`, and the lock is free then.
async fn ends_after(harness: &Harness, rest: Duration) {
    let remaining = remaining(harness).await.unwrap();
    assert!(
        remaining >= rest && remaining <= rest + DRIFT_MAX,
        "{remaining:?}"
    );
    harness.advance(remaining - Duration::from_millis(1)).await;
    assert!(harness.stranger().try_lock().await.unwrap().is_none());
    harness.advance(Duration::from_millis(1)).await;
    let next = harness.stranger().try_lock().await.unwrap().unwrap();
    next.release().await.unwrap();
}

fn mutex(harness: &Harness) -> Mutex {
    with_options(&harness.mutex(), LeaseOptions::new().min_hold(MINUTE))
}

/// However the release is sent.
#[tokio::test]
async fn it_lasts_from_the_grant() {
    for end in 0..3 {
        let harness = Harness::new();
        let guard = mutex(&harness).lock().await.unwrap();
        // The lease is renewed meanwhile.
        for _ in 0..40 {
            harness.advance(SECOND).await;
        }
        match end {
            0 => guard.release().await.unwrap(),
            1 => drop(guard),
            _ => {
                harness.client.shutdown(SECOND).await.unwrap();
            }
        }
        settle().await;
        ends_after(&harness, MINUTE - SECOND * 40).await;
    }
}

#[tokio::test]
async fn a_longer_hold_is_released_at_once() {
    let harness = Harness::new();
    let guard = mutex(&harness).lock().await.unwrap();
    for _ in 0..61 {
        harness.advance(SECOND).await;
    }
    guard.release().await.unwrap();
    assert!(harness.stranger().inspect().await.unwrap().is_none());
}

/// The store is away, or has applied the release and its reply was lost. After 20 s the lease would read lost, but it was
/// released before.
#[tokio::test]
async fn a_repeated_release_counts_anew() {
    let faults = [FaultMode::Unreachable, FaultMode::ReplyLost];
    for (mode, seconds) in faults.into_iter().flat_map(|mode| [(mode, 5), (mode, 22)]) {
        let harness = Harness::new();
        let guard = mutex(&harness).lock().await.unwrap();
        harness.store.set(mode);
        let error = guard.release().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        for _ in 0..seconds * 10 {
            harness.advance(SECOND / 10).await;
        }
        harness.store.set(FaultMode::None);
        for _ in 0..50 {
            harness.advance(SECOND / 10).await;
        }
        ends_after(&harness, MINUTE - SECOND * (seconds + 5)).await;
    }
}

/// One that is dropped before its caller has the lock.
#[tokio::test]
async fn a_cancelled_acquisition_begins_none() {
    for valve in [Valve::ClosedBefore, Valve::ClosedAfter] {
        let harness = Harness::new();
        harness.recorder.set(valve);
        {
            let mutex = mutex(&harness);
            let mut cancelled = pin!(mutex.lock());
            assert!(poll_once(cancelled.as_mut()).await.is_none());
        }
        harness.recorder.set(Valve::Open);
        harness.advance(SECOND).await;
        assert!(
            harness.stranger().inspect().await.unwrap().is_none(),
            "{valve:?}"
        );
    }
}

#[tokio::test]
async fn its_bounds_are_checked() {
    let harness = Harness::new();
    let day = Duration::from_secs(24 * 60 * 60);
    for allowed in [Duration::ZERO, Duration::from_nanos(1), TTL, day] {
        with_options(&harness.mutex(), LeaseOptions::new().min_hold(allowed));
    }
    for bad in [day + Duration::from_nanos(1), Duration::MAX] {
        let error = harness
            .mutex()
            .with(LeaseOptions::new().min_hold(bad))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(error.to_string().contains("at most 24 h"), "{error}");
        assert_eq!(error.lock(), Some("harness"));
    }
    // Zero is none.
    let none = with_options(
        &mutex(&harness),
        LeaseOptions::new().min_hold(Duration::ZERO),
    );
    none.lock().await.unwrap().release().await.unwrap();
    assert!(harness.stranger().inspect().await.unwrap().is_none());
}
