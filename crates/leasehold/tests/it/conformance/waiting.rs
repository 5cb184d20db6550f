//! Waiting for a lock that another holds.

use std::time::{Duration, Instant};

use leasehold_testkit::eventually_async;

use crate::bed::{Bed, fresh_name};

const SOON: Duration = Duration::from_secs(10);

pub(super) async fn a_waiter_gets_the_lock_after_the_release(bed: Bed) {
    let name = fresh_name("waiter");
    let (first, second) = (bed.client().await, bed.client().await);
    let guard = first.mutex(&name).unwrap().lock().await.unwrap();
    let mutex = second.mutex(&name).unwrap();
    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
    let token = guard.token();
    assert!(!waiting.is_finished());
    guard.release().await.unwrap();
    let next = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
}

/// The holder's process is gone without a word: its lease is the backstop.
pub(super) async fn a_waiter_gets_the_lock_of_a_dead_holder(bed: Bed) {
    let name = fresh_name("dead");
    let (first, second) = (bed.client().await, bed.client().await);
    let lease = Duration::from_millis(400);
    let mutex = first.mutex(&name).unwrap().lease(lease).unwrap();
    let begun = Instant::now();
    // Leaked: nobody releases it, and a fixed lease is not renewed.
    std::mem::forget(mutex.lock().await.unwrap());
    let next = second.mutex(&name).unwrap().lock().await.unwrap();
    let waited = begun.elapsed();
    assert!(waited >= lease, "served {waited:?} after, before its end");
    assert!(waited < lease * 4, "served {waited:?} after");
    next.release().await.unwrap();
}

pub(super) async fn a_timeout_ends_the_waiting(bed: Bed) {
    let mutex = bed.client().await.mutex(fresh_name("timeout")).unwrap();
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
