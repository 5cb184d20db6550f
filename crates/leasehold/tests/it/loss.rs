//! The states of a lease during failures, on a clock that the tests move.

use std::pin::pin;
use std::time::Duration;

use leasehold::__private::store::{Event, Name, Outcome};
use leasehold::{Cause, ErrorKind, Guard, LeaseOptions, Owner, State, StateKind};
use leasehold_core::{Grant, LeaseId, Notice, Op, StoreTime, Token, Ttl};

use crate::faulty_store::FaultMode;
use crate::fixture::with_options;
use crate::harness::{Harness, SECOND, TTL, poll_once, settle};
use crate::store_client::keyspace;
use crate::store_ext::StoreExt as _;
use crate::waiters::{soon, spawn_waiter};

#[tokio::test]
async fn two_failed_renewals_are_lost_with_a_third_of_the_ttl_left() {
    let harness = Harness::new();
    let guard = harness.mutex().lock().await.unwrap();
    let mut states = guard.states();
    assert!(states.next().await.unwrap().is_held());
    harness.store.set(FaultMode::Unreachable);

    let jeopardy = harness.until(&guard, |state| !state.is_held()).await;
    let expected = TTL * 28 / 100..TTL / 3 + SECOND;
    assert!(expected.contains(&jeopardy), "{jeopardy:?}");
    let kind = states.next().await.unwrap().kind();
    assert_eq!(kind, StateKind::Jeopardy(Cause::Unreachable));
    harness.until(&guard, |state| state.is_lost()).await;
    let holder = harness.stranger().inspect().await.unwrap();
    let left = holder.unwrap().time_left;
    assert!(left >= TTL / 3, "{left:?} left");
    assert_eq!(states.next().await, Some(State::Lost(Cause::Unreachable)));
    assert_eq!(guard.lost().await, Cause::Unreachable);
    // The store comes back, the lease does not.
    harness.store.set(FaultMode::None);
    harness.advance(SECOND).await;
    assert!(guard.state().is_lost());
    // Meanwhile no other client could acquire it.
    assert!(harness.stranger().try_lock().await.unwrap().is_none());
    harness.advance(TTL / 3).await;
    let next = harness.stranger().try_lock().await.unwrap().unwrap();
    assert!(next.token() > guard.token());
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

/// It is repeated, and until then the lock stays taken.
#[tokio::test]
async fn run_succeeds_though_its_release_fails() {
    let harness = Harness::new();
    let away = async |_: &Guard| harness.store.set(FaultMode::Unreachable);
    harness.mutex().run(away).await.unwrap();
    settle().await;
    assert!(harness.stranger().try_lock().await.unwrap().is_none());
    harness.store.set(FaultMode::None);
    harness.advance(SECOND).await;
    assert!(harness.stranger().try_lock().await.unwrap().is_some());
}

/// The request was sent twice, so the first one may still be applied. The release of an inner hold must not
/// release the lease because of that.
#[tokio::test]
async fn an_inner_release_after_a_lost_reply_leaves_the_outer_hold_its_lease() {
    for dropped in [false, true] {
        let harness = Harness::new();
        let owner = Owner::new();
        let mutex = with_options(&harness.mutex(), LeaseOptions::new().owner(&owner));
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
            harness.advance(TTL / 30).await;
            assert!(outer.state().is_held(), "{:?}", outer.state());
            assert!(harness.stranger().try_lock().await.unwrap().is_none());
        }
        outer.release().await.unwrap();
        assert!(harness.mutex().inspect().await.unwrap().is_none());
    }
}

/// The store does not shorten the lease when an inner hold is left that was for longer.
#[tokio::test]
async fn a_release_is_repeated_as_long_as_the_store_keeps_the_lease() {
    for shuts_down in [false, true] {
        let harness = Harness::new();
        let owner = Owner::new();
        let mutex = |options: LeaseOptions| with_options(&harness.mutex(), options.owner(&owner));
        let outer = mutex(LeaseOptions::new()).lock().await.unwrap();
        let long = mutex(LeaseOptions::new().fixed(TTL * 20));
        long.lock().await.unwrap().release().await.unwrap();
        harness.store.set(FaultMode::Unreachable);
        if shuts_down {
            assert!(harness.client.shutdown(Duration::ZERO).await.is_err());
        }
        drop(outer);
        for _ in 0..60 {
            harness.advance(SECOND).await;
        }
        assert!(harness.stranger().try_lock().await.unwrap().is_none());
        harness.store.set(FaultMode::None);
        harness.advance(SECOND * 3).await;
        assert!(harness.stranger().try_lock().await.unwrap().is_some());
    }
}

/// The store has forgotten it, without a notice. The re-entry is a new lease, which the old one does not disturb.
#[tokio::test]
async fn a_re_entry_into_a_lease_that_is_forgotten_is_a_new_lease() {
    let harness = Harness::new();
    let mutex = with_options(&harness.mutex(), LeaseOptions::new().owner(&Owner::new()));
    let outer = mutex.lock().await.unwrap();
    let key = keyspace("leasehold", "default").key(Name::parse(outer.name()).unwrap());
    let forget = Op::release(outer.lease_id());
    let forgotten = harness.store.outcome(&key, forget).await.unwrap();
    assert_eq!(forgotten, Outcome::Released);
    let inner = mutex.lock().await.unwrap();
    assert_eq!(outer.state(), State::Lost(Cause::Deleted));
    assert_ne!(inner.lease_id(), outer.lease_id());
    drop(outer);
    for _ in 0..60 {
        harness.advance(TTL / 30).await;
        assert!(inner.state().is_held(), "{:?}", inner.state());
    }
    inner.release().await.unwrap();
    assert!(harness.mutex().inspect().await.unwrap().is_none());
}

/// The process was stopped. Before its timers ring, an inner hold is left.
#[tokio::test]
async fn a_loss_that_an_inner_release_notices_first_ends_no_wait() {
    let harness = Harness::new();
    let owner = Owner::new();
    let mutex = with_options(&harness.mutex(), LeaseOptions::new().owner(&owner));
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

/// Its client was away when it was granted the lock the first time, and has acquired it again under the same id.
#[tokio::test]
async fn a_notice_of_an_earlier_grant_ends_no_lease() {
    let harness = Harness::new();
    let guard = harness.mutex().lock().await.unwrap();
    let lock = harness.client.rw_lock("shared").unwrap();
    let reader = lock.read().await.unwrap();
    for (name, lease, first) in [
        ("harness", guard.lease_id(), guard.token()),
        ("shared", reader.lease_id(), reader.token()),
    ] {
        notify_grant(&harness, name, lease, Token::new(first.get() - 1).unwrap());
    }
    settle().await;
    assert!(guard.state().is_held() && reader.state().is_held());
    guard.release().await.unwrap();
    reader.release().await.unwrap();
}

/// Its holder has the rest of the ttl to end its work.
#[tokio::test]
async fn a_notice_of_its_grant_does_not_release_a_lost_lease() {
    // The loss is noticed at the deadline, or by a hint of the store after a pause.
    for is_hinted in [false, true] {
        let harness = Harness::new();
        let guard = harness.mutex().lock().await.unwrap();
        harness.store.set(FaultMode::Silent);
        if is_hinted {
            harness.clock.advance(TTL * 7 / 10);
            let key = keyspace("leasehold", "default").key(Name::parse("harness").unwrap());
            harness.recorder.notify(&Event::Changed(key));
        }
        harness.until(&guard, |state| state.is_lost()).await;
        harness.recorder.clear();
        let notify = |first| notify_grant(&harness, "harness", guard.lease_id(), first);
        notify(guard.token());
        settle().await;
        let released = || harness.recorder.operations().concat().contains(&"release");
        assert!(!released());
        // A delayed request has acquired the lock again for its id.
        notify(Token::new(guard.token().get() + 1).unwrap());
        settle().await;
        assert!(released());
    }
}

fn notify_grant(harness: &Harness, name: &str, lease: LeaseId, first: Token) {
    let grant = Grant {
        lease,
        ttl: Ttl::remainder(SECOND),
        first,
        number: None,
        floor: None,
        now: StoreTime::default(),
        run: None,
    };
    let key = keyspace("leasehold", "default").key(Name::parse(name).unwrap());
    let event = Event::Notice(key, Notice::Granted(grant));
    harness.recorder.notify(&event);
}
