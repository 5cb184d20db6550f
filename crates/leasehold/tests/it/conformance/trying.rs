//! `try_lock`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::{Client, Guard};

use crate::fixture::{Fixture, fresh_name};
use crate::waiters::{SOON, sleeping, soon, spawn_polled, spawn_waiter};

pub(super) async fn a_free_lock_is_taken(fixture: Fixture) {
    let (client, recorder) = fixture.recorded(Client::builder()).await;
    let name = fresh_name("free");
    let mutex = client.mutex(&name).unwrap();
    let first = mutex.try_lock().await.unwrap().unwrap();
    first.release().await.unwrap();
    let operations = recorder.operations();
    match fixture {
        // A request that busy masters do not decide in time is repeated.
        Fixture::Masters(_) => {
            let sent = operations.concat();
            assert!(
                sent.starts_with(&["acquire"]) && sent.ends_with(&["release"]),
                "{sent:?}"
            );
        }
        _ => assert_eq!(operations, [["acquire"], ["release"]]),
    }
    // Also after others waited, here and elsewhere.
    let other = fixture.client().await.mutex(&name).unwrap();
    let guard = mutex.lock().await.unwrap();
    let waiters = [spawn_waiter(&mutex), spawn_waiter(&other)];
    guard.release().await.unwrap();
    for waiter in
        waiters.map(|waiter| tokio::spawn(async move { waiter.await.unwrap().release().await }))
    {
        soon(waiter).await.unwrap();
    }
    let last = mutex.try_lock().await.unwrap().unwrap();
    last.release().await.unwrap();
}

pub(super) async fn a_lock_of_this_process_is_refused_without_the_store(fixture: Fixture) {
    let (client, recorder) = fixture.recorded(Client::builder()).await;
    let mutex = client.mutex(fresh_name("own")).unwrap();
    let guard = mutex.lock().await.unwrap();
    let waiters = [spawn_waiter(&mutex), spawn_waiter(&mutex)];
    recorder.clear();
    for _ in 0..100 {
        assert!(mutex.try_lock().await.unwrap().is_none());
    }
    recorder.assert_silent();
    guard.release().await.unwrap();
    for waiter in waiters {
        let guard = soon(waiter).await;
        recorder.clear();
        assert!(mutex.try_lock().await.unwrap().is_none());
        recorder.assert_silent();
        guard.release().await.unwrap();
    }
}

pub(super) async fn work_is_not_begun_while_another_holds_the_lock(fixture: Fixture) {
    let mutex = fixture.mutex("work").await;
    let other = fixture.client().await.mutex(mutex.name()).unwrap();
    let guard = other.lock().await.unwrap();
    let begun = AtomicBool::new(false);
    let work = async |_: &Guard| begun.store(true, Ordering::SeqCst);
    assert!(mutex.try_run(&work).await.unwrap().is_none());
    let refused = mutex.run_timeout(Duration::from_secs(3), &work).await;
    assert!(refused.unwrap().is_none() && !begun.load(Ordering::SeqCst));

    let token = guard.token();
    let waiting = mutex.clone();
    let waiting = spawn_polled(async move {
        let work = async |lease: &Guard| lease.token();
        waiting.run_timeout(SOON, work).await
    });
    guard.release().await.unwrap();
    assert!(soon(waiting).await.unwrap().unwrap() > token);
    mutex.try_run(&work).await.unwrap().unwrap();
    assert!(begun.load(Ordering::SeqCst));
    assert!(mutex.inspect().await.unwrap().is_none());
}

/// The lock is free at many moments, but never for a request that does not wait.
pub(super) async fn try_lock_overtakes_no_waiter(fixture: Fixture) {
    let name = fresh_name("barge");
    let stranger = fixture.client().await;
    let (holder, holder_recorder) = fixture.recorded(Client::builder()).await;
    let (waiter, waiter_recorder) = fixture.recorded(Client::builder()).await;
    // Alone, side by side, and in the process of a waiter.
    let barging = [&stranger, &stranger, &waiter].map(|client| client.mutex(&name).unwrap());
    let sides = [(holder, holder_recorder), (waiter, waiter_recorder)];
    let sides = sides.map(|(client, recorder)| (client.mutex(&name).unwrap(), recorder));
    let mut guard = sides[0].0.lock().await.unwrap();
    let barging = barging.map(|mutex| {
        tokio::spawn(async move {
            loop {
                if let Some(guard) = mutex.try_lock().await.unwrap() {
                    break guard.release().await.unwrap();
                }
                tokio::task::yield_now().await;
            }
        })
    });
    // Two clients wait in turn: whenever one releases, the other is in the queue.
    for round in 1..=100 {
        let (mutex, recorder) = &sides[round % 2];
        let waiting = spawn_waiter(mutex);
        recorder.until_queued(round.div_ceil(2)).await;
        guard.release().await.unwrap();
        guard = soon(waiting).await;
        assert!(barging.iter().all(|task| !task.is_finished()), "{round}");
    }
    // In the end it is free, and they get it.
    guard.release().await.unwrap();
    for task in barging {
        soon(task).await;
    }
}

/// The next task of the local queue may not have run yet when another tries.
pub(super) async fn try_lock_does_not_overtake_a_waiter_at_its_turn(fixture: Fixture) {
    let client = fixture.client().await;
    let mutex = client.mutex(fresh_name("turn")).unwrap();
    let guard = mutex.lock().await.unwrap();
    // In line, but it does not run until the test lets it.
    let waiting = sleeping(&mutex);
    mutex.revoke().await.unwrap();
    guard.lost().await;
    assert!(mutex.try_lock().await.unwrap().is_none());
    let waiting = tokio::spawn(waiting);
    soon(waiting).await.release().await.unwrap();
    drop(guard);
}
