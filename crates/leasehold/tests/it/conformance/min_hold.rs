//! Minimum holds. Their times are tested in `it::min_hold`, on a clock that the test moves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use leasehold::clock::ManualClock;
use leasehold::{Client, ErrorKind, LeaseOptions, Owner};
use leasehold_testkit::eventually_async;

use crate::fixture::{Fixture, fresh_name, with_options};
use crate::kinds::Kind;
use crate::waiters::{SOON, soon, spawn_waiter};

const HOUR: Duration = Duration::from_secs(3_600);

/// How far a clock advances while something is awaited.
const STEP: Duration = Duration::from_millis(1);

/// Its end is the only reason for which the lock is granted again: the waiter asks before its release, the other
/// client after it. The lease would have lasted for longer, and so would the first try.
pub(super) async fn a_released_lock_stays_taken_until_its_end(fixture: Fixture) {
    // Long enough for a dozen requests, even to a bucket whose server is busy.
    let duration = Duration::from_secs(10);
    let (client, recorder) = fixture.recorded(Client::builder()).await;
    let other = fixture.client().await;
    let name = fresh_name("min-hold");
    let shared = client.mutex(&name).unwrap();
    let mutex = with_options(&shared, LeaseOptions::new().owner(&Owner::new()));
    let mutex = with_options(&mutex, LeaseOptions::new().min_hold(duration));
    let other = other.mutex(&name).unwrap();
    let begun = Instant::now();
    let guard = mutex.lock().await.unwrap();
    // Re-entry works as ever, and a task of another owner waits here.
    mutex.lock().await.unwrap().release().await.unwrap();
    let waiter = with_options(&shared, LeaseOptions::new().owner(&Owner::new()));
    let waiter = spawn_waiter(&waiter);
    recorder.clear();
    let lease = guard.lease_id();
    guard.release().await.unwrap();
    let operations = || recorder.operations().concat();
    eventually_async(SOON, async || operations().len() >= 2).await;
    assert_eq!(operations()[..2], ["release_after", "acquire"]);

    let info = other.inspect().await.unwrap().unwrap();
    assert_eq!((info.lease, info.count), (lease, 1));
    assert!(info.min_hold && info.time_left <= duration, "{info:?}");
    for mutex in [&mutex, &other] {
        assert!(mutex.inspect().await.unwrap().is_some());
        assert!(mutex.try_lock().await.unwrap().is_none());
    }
    assert!(begun.elapsed() < duration, "the machine was too busy");
    let next = soon(waiter).await;
    assert!(begun.elapsed() >= duration, "{:?}", begun.elapsed());
    // It is another lease, which has none.
    assert_ne!(next.lease_id(), lease);
    next.release().await.unwrap();
    assert!(begun.elapsed() < SOON);
    other.lock().await.unwrap().release().await.unwrap();
}

pub(super) async fn each_kind_of_lock_has_one(fixture: Fixture) {
    let [client, other] = [fixture.client().await, fixture.client().await];
    let duration = Duration::from_secs(6);
    let kinds = Kind::all_of(&fixture).await.into_iter();
    join_all(kinds.map(async |kind| {
        let name = fresh_name("min-hold");
        let begun = Instant::now();
        let min_hold = LeaseOptions::new().min_hold(duration);
        let held = kind.lock(&client, &name, min_hold).await.unwrap();
        held.release().await.unwrap();
        let info = other.mutex(&name).unwrap().inspect().await.unwrap();
        assert!(info.is_some_and(|info| info.min_hold), "{kind:?}");
        let next = kind.rival().lock(&other, &name, LeaseOptions::new());
        let next = next.await.unwrap();
        let waited = begun.elapsed();
        assert!((duration..SOON).contains(&waited), "{kind:?}: {waited:?}");
        next.release().await.unwrap();
    }))
    .await;
}

/// The release reaches the store while its record still has the lease: the clock of the client has passed its end.
pub(super) async fn a_lost_lease_begins_none(fixture: Fixture) {
    let clock = ManualClock::new();
    let builder = Client::builder().clock(Arc::new(clock.clone()));
    let client = fixture.client_with(builder).await;
    let other = fixture.client().await;
    for (fixed, dropped) in [(true, false), (true, true), (false, false), (false, true)] {
        let name = fresh_name("lost");
        let mutex = client.mutex(&name).unwrap();
        let mutex = with_options(&mutex, LeaseOptions::new().min_hold(HOUR));
        let mutex = match fixed {
            true => with_options(&mutex, LeaseOptions::new().fixed(HOUR)),
            false => mutex,
        };
        // A repetition of the request waits by this clock.
        let locked = spawn_waiter(&mutex);
        eventually_async(SOON, async || {
            clock.advance(STEP);
            locked.is_finished()
        })
        .await;
        let guard = soon(locked).await;
        clock.advance(HOUR);
        assert!(guard.state().is_lost());
        let other = other.mutex(&name).unwrap();
        if dropped {
            drop(guard);
        } else {
            assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
        }
        // A renewed lease would be free after its ttl as well, which is longer than that.
        eventually_async(SOON, async || {
            clock.advance(STEP);
            other.inspect().await.unwrap().is_none()
        })
        .await;
    }
}

pub(super) async fn a_revocation_ends_it(fixture: Fixture) {
    let name = fresh_name("revoked");
    let [client, other] = [fixture.client().await, fixture.client().await];
    let mutex = client.mutex(&name).unwrap();
    let mutex = with_options(&mutex, LeaseOptions::new().min_hold(HOUR));
    let other = other.mutex(&name).unwrap();
    let guard = mutex.lock().await.unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    let waiter = spawn_waiter(&other);
    let cut_off = mutex.revoke().await.unwrap().unwrap();
    assert!(cut_off.min_hold, "{cut_off:?}");
    let next = soon(waiter).await;
    assert!(next.token() > token);
    next.release().await.unwrap();
    // One of many masters may have the lease for a moment longer.
    eventually_async(SOON, async || matches!(mutex.inspect().await, Ok(None))).await;
}
