//! How long a lease lasts.

use std::time::{Duration, Instant};

use leasehold::clock::{BootClock, Clock};
use leasehold::{Cause, ErrorKind, LeaseOptions, State};

use crate::fixture::{Fixture, fresh_name, with_options};

/// Long enough that a busy machine sees it held.
const SHORT: Duration = Duration::from_secs(3);

/// Long enough that a busy machine does not lose a renewed lease.
const TTL: Duration = Duration::from_secs(9);

pub(super) async fn a_fixed_lease_ends_on_time_and_is_not_renewed(fixture: Fixture) {
    let mutex = fixture.mutex("fixed").await;
    let (begun, requested) = (Instant::now(), BootClock.now());
    let guard = with_options(&mutex, LeaseOptions::new().fixed(SHORT))
        .lock()
        .await
        .unwrap();
    // The drift is taken off.
    assert!(guard.deadline() < BootClock.now().after(SHORT));
    let mut states = guard.states();
    assert!(states.next().await.unwrap().is_held());
    assert_eq!(guard.lost().await, Cause::Expired);
    assert_eq!(states.next().await, Some(State::Lost(Cause::Expired)));
    assert_eq!(states.next().await, None);
    assert!(BootClock.now() >= guard.deadline(), "notified too early");
    assert!(guard.deadline() >= requested.after(SHORT * 9 / 10));
    // The store also ends it: the next one is served without any release.
    let next = mutex.lock().await.unwrap();
    assert!(begun.elapsed() >= SHORT, "granted too early");
    next.release().await.unwrap();
    drop(guard);
}

pub(super) async fn a_renewed_lease_outlives_its_ttl(fixture: Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let name = fresh_name("renewed");
    let mutex = client.mutex(&name).unwrap();
    let mutex = with_options(&mutex, LeaseOptions::new().ttl(TTL));
    let guard = mutex.lock().await.unwrap();
    let begun = Instant::now();
    let stranger = other.mutex(&name).unwrap();
    let waited = stranger.lock_timeout(TTL * 3 / 2).await.unwrap();
    assert!(waited.is_none());
    assert!(begun.elapsed() >= TTL * 3 / 2);
    assert!(!guard.state().is_lost(), "{:?}", guard.state());
    guard.release().await.unwrap();
}

pub(super) async fn ensure_renews_or_fails_with_the_reason(fixture: Fixture) {
    let mutex = fixture.mutex("ensure").await;
    let guard = mutex.lock().await.unwrap();
    guard.ensure(Duration::from_secs(1)).await.unwrap();
    let before = guard.deadline();
    // Two thirds of the 30 s can be had right after a renewal, less what a busy machine takes.
    guard.ensure(Duration::from_secs(15)).await.unwrap();
    assert!(guard.deadline() >= before);
    let error = guard.ensure(Duration::from_secs(25)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(guard.state().is_held());
    mutex.revoke().await.unwrap();
    let error = guard.ensure(Duration::from_secs(25)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(guard.state(), State::Lost(Cause::Revoked));

    let fixed = with_options(&mutex, LeaseOptions::new().fixed(Duration::from_secs(20)));
    let guard = fixed.lock().await.unwrap();
    guard.ensure(Duration::from_secs(9)).await.unwrap();
    let error = guard.ensure(Duration::from_secs(25)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    guard.release().await.unwrap();
}

pub(super) async fn ttls_outside_the_bounds_are_refused(fixture: Fixture) {
    let mutex = fixture.mutex("bounds").await;
    let day = Duration::from_secs(24 * 60 * 60);
    for bad in [
        Duration::ZERO,
        Duration::from_millis(99),
        day + Duration::from_millis(1),
        Duration::MAX,
    ] {
        for refused in [
            mutex.with(LeaseOptions::new().ttl(bad)),
            mutex.with(LeaseOptions::new().fixed(bad)),
        ] {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
            assert!(error.to_string().contains("from 100 ms to 24 h"), "{error}");
        }
    }
    let guard = with_options(&mutex, LeaseOptions::new().fixed(day))
        .lock()
        .await
        .unwrap();
    guard.release().await.unwrap();
}
