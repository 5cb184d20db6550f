//! The states of a lease during failures, on a clock that the tests move.

use std::pin::pin;

use leasehold::{Cause, ErrorKind, Owner, State};

use crate::faulty_store::FaultMode;
use crate::harness::{Harness, SECOND, TTL, poll_once, settle};
use crate::waiters::{soon, spawn_waiter};

#[tokio::test]
async fn renewals_keep_a_lease_for_a_hundred_ttls() {
    let harness = Harness::new();
    let guard = harness.mutex().lock().await.unwrap();
    for _ in 0..3_000 {
        harness.go_on(TTL / 30).await;
        assert!(guard.state().is_held(), "{:?}", guard.state());
    }
    assert!(harness.stranger().try_lock().await.unwrap().is_none());
    // Every third of the ttl, and no more often.
    let renewals = harness.store.calls() - 2;
    assert!((280..=310).contains(&renewals), "{renewals} renewals");
}

#[tokio::test]
async fn two_failed_renewals_are_lost_with_a_third_of_the_ttl_left() {
    let harness = Harness::new();
    let guard = harness.mutex().lock().await.unwrap();
    let mut states = guard.states();
    assert!(states.next().await.unwrap().is_held());
    harness.store.set(FaultMode::Unreachable);

    let jeopardy = harness.until(&guard, |state| !state.is_held()).await;
    assert!(
        (TTL * 28 / 100..TTL / 3 + SECOND).contains(&jeopardy),
        "{jeopardy:?}"
    );
    let state = states.next().await.unwrap();
    assert!(matches!(
        state,
        State::Jeopardy {
            cause: Cause::Unreachable,
            ..
        }
    ));
    harness.until(&guard, |state| state.is_lost()).await;
    let left = harness.stranger().time_left().await.unwrap().unwrap();
    assert!(left >= TTL / 3, "{left:?} left");
    assert_eq!(states.next().await, Some(State::Lost(Cause::Unreachable)));
    assert_eq!(guard.lost().await, Cause::Unreachable);
    // The store comes back, the lease does not.
    harness.store.set(FaultMode::None);
    harness.go_on(SECOND).await;
    assert!(guard.state().is_lost());
    // Meanwhile no other client could acquire it.
    assert!(harness.stranger().try_lock().await.unwrap().is_none());
    harness.go_on(TTL / 3).await;
    let next = harness.stranger().try_lock().await.unwrap().unwrap();
    assert!(next.token() > guard.token());
}

#[tokio::test]
async fn one_failed_renewal_is_jeopardy_until_the_next_succeeds() {
    let harness = Harness::new();
    let guard = harness.mutex().lock().await.unwrap();
    harness.store.set(FaultMode::Unreachable);
    harness.until(&guard, |state| !state.is_held()).await;
    harness.store.set(FaultMode::None);
    harness.until(&guard, |state| state.is_held()).await;
    harness.go_on(TTL / 6).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_renewal_without_a_reply_ends_in_lost_too() {
    let harness = Harness::new();
    let guard = harness.mutex().lock().await.unwrap();
    harness.store.set(FaultMode::Silent);
    let lost = harness.until(&guard, |state| state.is_lost()).await;
    assert!(lost < TTL * 2 / 3, "{lost:?}");
    assert_eq!(guard.state(), State::Lost(Cause::Unreachable));
    drop(guard);
}

#[tokio::test]
async fn an_applied_renewal_without_a_reply_is_jeopardy_and_then_held() {
    let harness = Harness::new();
    let guard = harness.mutex().lock().await.unwrap();
    harness.store.set(FaultMode::ReplyLost);
    harness.until(&guard, |state| !state.is_held()).await;
    harness.store.set(FaultMode::None);
    harness.until(&guard, |state| state.is_held()).await;
}

/// A stopped process runs nothing, not even its timers.
#[tokio::test]
async fn a_process_that_was_stopped_reads_lost_first() {
    let harness = Harness::new();
    let guard = harness.mutex().lock().await.unwrap();
    harness.clock.advance(TTL);
    assert_eq!(guard.state(), State::Lost(Cause::Paused));
    let next = harness.stranger().try_lock().await.unwrap().unwrap();
    assert!(next.token() > guard.token());
    settle().await;
    assert!(guard.state().is_lost());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(next.state().is_held());
}

#[tokio::test]
async fn run_does_not_go_on_with_the_work_after_a_pause() {
    let harness = Harness::new();
    let (mutex, clock) = (harness.mutex(), harness.clock.clone());
    let steps = std::cell::Cell::new(0);
    let work = mutex.run(async |_| {
        steps.set(1);
        // The process is stopped here; the work itself would be ready to go on.
        clock.advance(TTL);
        tokio::task::yield_now().await;
        steps.set(2);
    });
    assert_eq!(work.await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(steps.get(), 1);
}

#[tokio::test]
async fn an_acquire_with_a_lost_reply_is_repeated_and_held_once() {
    let harness = Harness::new();
    harness.store.set(FaultMode::ReplyLost);
    let mutex = harness.mutex();
    let mut locking = pin!(mutex.lock());
    poll_once(locking.as_mut()).await;
    // It ran in the store; the client does not know.
    let first = harness.stranger().holder().await.unwrap().unwrap();
    harness.store.set(FaultMode::None);
    harness.clock.advance(SECOND);
    let guard = locking.await.unwrap();
    assert_eq!(guard.lease_id(), first.lease);
    assert_eq!(Some(guard.token()), first.token);
    assert_eq!(harness.stranger().holder().await.unwrap().unwrap().count, 1);
    guard.release().await.unwrap();
    assert!(!harness.stranger().is_locked().await.unwrap());
}

#[tokio::test]
async fn an_outage_is_reported_and_not_taken_for_a_refusal() {
    let harness = Harness::new();
    harness.store.set(FaultMode::Unreachable);
    let mutex = harness.mutex();
    let mut limited = pin!(mutex.lock_timeout(SECOND * 5));
    let mut unlimited = pin!(mutex.lock());
    let mut once = pin!(mutex.try_lock());
    let (mut a, mut b, mut c) = (None, None, None);
    for _ in 0..1_000 {
        if a.is_none() {
            a = poll_once(limited.as_mut()).await;
        }
        if b.is_none() {
            b = poll_once(unlimited.as_mut()).await;
        }
        if c.is_none() {
            c = poll_once(once.as_mut()).await;
        }
        if a.is_some() && b.is_some() && c.is_some() {
            break;
        }
        harness.go_on(SECOND / 10).await;
    }
    for error in [
        a.unwrap().unwrap_err(),
        b.unwrap().unwrap_err(),
        c.unwrap().unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        let text = error.to_string();
        assert!(
            text.contains("harness") && text.contains("faulty:"),
            "{text}"
        );
    }
    harness.store.set(FaultMode::None);
    assert!(!mutex.is_locked().await.unwrap());
}

/// The acquire ran, its reply was lost and its caller left: it is released, now or a ttl later.
#[tokio::test]
async fn a_request_that_runs_late_is_released_once_more_after_its_ttl() {
    let harness = Harness::new();
    harness.store.set(FaultMode::Late);
    {
        let mutex = harness.mutex();
        let mut locking = pin!(mutex.lock());
        assert!(poll_once(locking.as_mut()).await.is_none());
    }
    harness.store.set(FaultMode::None);
    settle().await;
    // The release was here first, then the request comes alive, with a full ttl.
    harness.go_on(TTL - SECOND).await;
    harness.store.run_late_requests().await;
    assert!(harness.stranger().is_locked().await.unwrap());
    harness.go_on(SECOND * 2).await;
    assert!(!harness.stranger().is_locked().await.unwrap());
}

#[tokio::test]
async fn a_release_that_fails_is_repeated() {
    let harness = Harness::new();
    let guard = harness.mutex().lock().await.unwrap();
    harness.store.set(FaultMode::Unreachable);
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(harness.stranger().is_locked().await.unwrap());
    harness.store.set(FaultMode::None);
    harness.go_on(SECOND).await;
    assert!(!harness.stranger().is_locked().await.unwrap());
}

/// The request was sent twice, so the first one may still be applied. The release of an inner hold must not
/// release the lease because of that.
#[tokio::test]
async fn an_inner_release_after_a_lost_reply_leaves_the_outer_hold_its_lease() {
    for dropped in [false, true] {
        let harness = Harness::new();
        let owner = Owner::new();
        let mutex = harness.mutex().owned_by(&owner);
        harness.store.set(FaultMode::ReplyLost);
        let mut locking = pin!(mutex.lock());
        poll_once(locking.as_mut()).await;
        harness.store.set(FaultMode::None);
        harness.clock.advance(SECOND);
        let outer = locking.await.unwrap();
        let inner = mutex.lock().await.unwrap();
        if dropped {
            drop(inner);
        } else {
            inner.release().await.unwrap();
        }
        for _ in 0..90 {
            harness.go_on(TTL / 30).await;
            assert!(outer.state().is_held(), "{:?}", outer.state());
            assert!(harness.stranger().try_lock().await.unwrap().is_none());
        }
        outer.release().await.unwrap();
        assert!(!harness.mutex().is_locked().await.unwrap());
    }
}

/// The process was stopped. Before its timers ring, an inner hold is left.
#[tokio::test]
async fn a_loss_that_an_inner_release_notices_first_ends_no_wait() {
    let harness = Harness::new();
    let owner = Owner::new();
    let mutex = harness.mutex().owned_by(&owner);
    let outer = mutex.lock().await.unwrap();
    let inner = mutex.lock().await.unwrap();
    let waiter = spawn_waiter(&harness.mutex());
    harness.clock.advance(TTL);
    drop(inner);
    assert!(outer.state().is_lost());
    settle().await;
    let next = soon(waiter).await;
    assert!(next.state().is_held());
    assert!(next.token() > outer.token());
}
