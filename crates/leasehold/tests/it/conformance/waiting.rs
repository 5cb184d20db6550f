//! Waiting for a lock that another holds.

use std::time::{Duration, Instant};

use leasehold::{Client, Guard, LeaseOptions, Mutex};
use leasehold_testkit::eventually_async;

use crate::fixture::{Fixture, fresh_name, with_options};
use crate::waiters::{SOON, poll_once, soon, spawn_waiter};

/// A fixed lease that its holder does not release. The others join the queue before its end even on a busy machine.
const LEASE: Duration = Duration::from_secs(4);

/// A waiter of the holder's own client and one of another client both acquire the lock, one after the other, after
/// `free`. A guard that it returns is lost then.
async fn both_are_served(
    fixture: Fixture,
    lease: Option<Duration>,
    free: impl AsyncFn(Guard, Mutex) -> Option<Guard>,
) {
    let name = fresh_name("served");
    let holder = fixture.client().await.mutex(&name).unwrap();
    let (other, recorder) = fixture.recorded(Client::builder()).await;
    let other = other.mutex(&name).unwrap();
    let fixed = lease.map(|lease| with_options(&holder, LeaseOptions::new().fixed(lease)));
    let guard = fixed.as_ref().unwrap_or(&holder).lock().await.unwrap();
    let token = guard.token();
    let waiters = [&holder, &other].map(|mutex| {
        let waiter = spawn_waiter(mutex);
        assert!(!waiter.is_finished());
        tokio::spawn(async move {
            let guard = waiter.await.unwrap();
            let token = guard.token();
            guard.release().await.unwrap();
            token
        })
    });
    recorder.until_queued(1).await;
    let guard = free(guard, other).await;
    let mut tokens = vec![token];
    for waiter in waiters {
        tokens.push(soon(waiter).await);
    }
    assert_eq!(tokens.iter().min(), Some(&token));
    assert_ne!(tokens[1], tokens[2]);
    assert!(guard.is_none_or(|guard| guard.state().is_lost()));
    eventually_async(SOON, async || holder.inspect().await.unwrap().is_none()).await;
}

pub(super) async fn waiters_get_the_lock_after_a_release(fixture: Fixture) {
    both_are_served(fixture, None, async |guard, _| {
        guard.release().await.unwrap();
        None
    })
    .await;
}

pub(super) async fn waiters_get_the_lock_after_a_drop(fixture: Fixture) {
    both_are_served(fixture, None, async |_guard, _| None).await;
}

/// The guard lives on, as that of a dead process: the end of its lease is enough.
pub(super) async fn waiters_get_the_lock_at_the_end_of_a_fixed_lease(fixture: Fixture) {
    let begun = Instant::now();
    both_are_served(fixture, Some(LEASE), async |held, _| Some(held)).await;
    let waited = begun.elapsed();
    // Long before the ttl of a waiter, after which it repeats its request in any case.
    assert!(waited >= LEASE && waited < SOON, "{waited:?}");
}

pub(super) async fn waiters_get_the_lock_after_a_revocation(fixture: Fixture) {
    both_are_served(fixture, None, async |held, operator| {
        let cut_off = operator.revoke().await.unwrap().unwrap();
        assert_eq!(cut_off.lease, held.lease_id());
        Some(held)
    })
    .await;
}

pub(super) async fn a_timeout_ends_the_waiting(fixture: Fixture) {
    let mutex = fixture.mutex("timeout").await;
    let guard = mutex.lock().await.unwrap();
    let begun = Instant::now();
    // Longer than a request takes, also on a busy machine.
    let timeout = Duration::from_secs(4);
    assert!(mutex.lock_timeout(timeout).await.unwrap().is_none());
    assert!(begun.elapsed() >= timeout);
    assert!(mutex.lock_timeout(Duration::ZERO).await.unwrap().is_none());
    guard.release().await.unwrap();
    // Nothing was left behind by the waiter.
    eventually_async(SOON, async || mutex.inspect().await.unwrap().is_none()).await;
    let guard = mutex.lock_timeout(Duration::ZERO).await.unwrap();
    drop(guard);
}

/// As in a loop that polls another future meanwhile.
pub(super) async fn a_waiter_that_is_not_polled_delays_no_other(fixture: Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let name = fresh_name("wanted");
    let held = other.mutex(&name).unwrap().lock().await.unwrap();
    let mine = client.mutex(fresh_name("mine")).unwrap();
    let guard = mine.lock().await.unwrap();
    let wanted = client.mutex(&name).unwrap();
    let mut waiting = Box::pin(wanted.lock());
    assert!(poll_once(&mut waiting).is_pending());
    let released = tokio::time::timeout(SOON, guard.release()).await;
    released.unwrap().unwrap();
    held.release().await.unwrap();
    let next = tokio::time::timeout(SOON, waiting).await.unwrap();
    next.unwrap().release().await.unwrap();
}
