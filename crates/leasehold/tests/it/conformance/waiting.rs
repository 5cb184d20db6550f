//! Waiting for a lock that another holds.

use std::time::{Duration, Instant};

use leasehold::{Client, Guard, Mutex};
use leasehold_testkit::eventually_async;

use crate::fixture::{Fixture, fresh_name};
use crate::waiters::{SOON, in_line, poll_once, soon};

/// How long the holders have it that never release.
const LEASE: Duration = Duration::from_millis(400);

/// A waiter of the holder's own client and one of another client both get the lock, one after the
/// other, after `free` has done its part.
async fn both_are_served(
    fixture: Fixture,
    lease: Option<Duration>,
    free: impl AsyncFn(Guard, Mutex),
) {
    let name = fresh_name("served");
    let holder = fixture.client().await.mutex(&name).unwrap();
    let (other, recorder) = fixture.tapped(Client::builder()).await;
    let other = other.mutex(&name).unwrap();
    let guard = match lease {
        Some(lease) => holder.lease(lease).unwrap().lock().await.unwrap(),
        None => holder.lock().await.unwrap(),
    };
    let token = guard.token();
    let waiters = [&holder, &other].map(|mutex| {
        let waiter = in_line(mutex);
        assert!(!waiter.is_finished());
        tokio::spawn(async move {
            let guard = waiter.await.unwrap();
            let token = guard.token();
            guard.release().await.unwrap();
            token
        })
    });
    recorder.until_queued(1).await;
    free(guard, other).await;
    let mut tokens = vec![token];
    for waiter in waiters {
        tokens.push(soon(waiter).await);
    }
    assert_eq!(tokens.iter().min(), Some(&token));
    assert_ne!(tokens[1], tokens[2]);
    eventually_async(SOON, async || !holder.is_locked().await.unwrap()).await;
}

pub(super) async fn waiters_get_the_lock_after_a_release(fixture: Fixture) {
    both_are_served(fixture, None, async |guard, _| {
        guard.release().await.unwrap();
    })
    .await;
}

pub(super) async fn waiters_get_the_lock_after_a_drop(fixture: Fixture) {
    both_are_served(fixture, None, async |guard, _| drop(guard)).await;
}

/// The guard lives on: nobody waits for it.
pub(super) async fn waiters_get_the_lock_at_the_end_of_a_fixed_lease(fixture: Fixture) {
    let begun = Instant::now();
    let guard = std::sync::Mutex::new(None);
    both_are_served(fixture, Some(LEASE), async |held, _| {
        *guard.lock().unwrap() = Some(held);
    })
    .await;
    assert!(begun.elapsed() >= LEASE, "served before its end");
    assert!(guard.lock().unwrap().as_ref().unwrap().state().is_lost());
}

/// The guard lives on: nobody waits for it.
pub(super) async fn waiters_get_the_lock_after_a_forced_release(fixture: Fixture) {
    let guard = std::sync::Mutex::new(None);
    both_are_served(fixture, None, async |held, operator| {
        let cut_off = operator.force_release().await.unwrap().unwrap();
        assert_eq!(cut_off.lease, held.lease_id());
        *guard.lock().unwrap() = Some(held);
    })
    .await;
    assert!(guard.lock().unwrap().as_ref().unwrap().state().is_lost());
}

/// The holder's process is gone without a word: its lease is the backstop.
pub(super) async fn a_waiter_gets_the_lock_of_a_dead_holder(fixture: Fixture) {
    let name = fresh_name("dead");
    let (first, second) = (fixture.client().await, fixture.client().await);
    let mutex = first.mutex(&name).unwrap().lease(LEASE).unwrap();
    let begun = Instant::now();
    // Leaked: nobody releases it, and a fixed lease is not renewed.
    std::mem::forget(mutex.lock().await.unwrap());
    let next = second.mutex(&name).unwrap().lock().await.unwrap();
    let waited = begun.elapsed();
    assert!(waited >= LEASE, "served {waited:?} after, before its end");
    // Long before the ttl of the waiter, after which it would ask again in any case.
    assert!(waited < Duration::from_secs(10), "served {waited:?} after");
    next.release().await.unwrap();
}

pub(super) async fn a_timeout_ends_the_waiting(fixture: Fixture) {
    let mutex = fixture.client().await.mutex(fresh_name("timeout")).unwrap();
    let guard = mutex.lock().await.unwrap();
    let begun = Instant::now();
    let timeout = Duration::from_millis(200);
    assert!(mutex.lock_timeout(timeout).await.unwrap().is_none());
    assert!(begun.elapsed() >= timeout);
    assert!(mutex.lock_timeout(Duration::ZERO).await.unwrap().is_none());
    guard.release().await.unwrap();
    // Nothing was left behind by the waiter.
    eventually_async(SOON, async || !mutex.is_locked().await.unwrap()).await;
    let guard = mutex.lock_timeout(Duration::ZERO).await.unwrap();
    drop(guard);
}

/// A future that was polled and is not polled any more, as in a loop that looks at something else
/// meanwhile, keeps nobody else of its client waiting.
pub(super) async fn a_waiter_that_is_not_polled_stops_nobody(fixture: Fixture) {
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
