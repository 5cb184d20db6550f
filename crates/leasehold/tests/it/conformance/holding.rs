//! Acquisition, re-entry and release.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::{Cause, ErrorKind, LeaseOptions, Owner, State, StateKind};
use leasehold_testkit::eventually_async;

use crate::fixture::{Fixture, fresh_name, with_options};
use crate::kinds::Kind;
use crate::waiters::{SOON, spawn_waiter};

/// 32 tasks on two clients.
pub(super) async fn tasks_on_two_clients_exclude_each_other(fixture: Fixture) {
    let name = fresh_name("counter");
    let inside = Arc::new(AtomicBool::new(false));
    let clients = [fixture.client().await, fixture.client().await];
    let tasks = (0..32).map(|task| {
        let mutex = clients[task % 2].mutex(&name).unwrap();
        let inside = Arc::clone(&inside);
        tokio::spawn(async move {
            for _ in 0..5 {
                let guard = mutex.lock().await.unwrap();
                assert!(!inside.swap(true, Ordering::SeqCst), "two holders");
                tokio::task::yield_now().await;
                inside.store(false, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

pub(super) async fn an_owner_enters_again_and_the_store_shows_the_count(fixture: Fixture) {
    let client = fixture.client().await;
    let (owner, name) = (Owner::new(), fresh_name("again"));
    let mutex = client.mutex(&name).unwrap();
    let mutex = with_options(&mutex, LeaseOptions::new().owner(&owner));
    let count = async || mutex.inspect().await.unwrap().map(|info| info.count);

    let outer = mutex.lock().await.unwrap();
    let inner = mutex.try_lock().await.unwrap().unwrap();
    let third = mutex.lock_timeout(SOON).await.unwrap().unwrap();
    assert_eq!(outer.lease_id(), third.lease_id());
    assert_eq!(outer.token(), third.token());
    assert_eq!(count().await, Some(3));
    // In any order, by release or by drop.
    outer.release().await.unwrap();
    assert_eq!(count().await, Some(2));
    drop(third);
    eventually_async(SOON, async || count().await == Some(1)).await;
    assert!(inner.state().is_held());
    inner.release().await.unwrap();
    assert_eq!(count().await, None);

    // The owner of another client is another owner.
    let other = fixture.client().await.mutex(&name).unwrap();
    let other = with_options(&other, LeaseOptions::new().owner(&owner));
    let guard = mutex.lock().await.unwrap();
    assert!(other.try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
}

pub(super) async fn tasks_of_one_owner_share_one_lease(fixture: Fixture) {
    let client = fixture.client().await;
    let mutex = client.mutex(fresh_name("meet")).unwrap();
    let mutex = with_options(&mutex, LeaseOptions::new().owner(&Owner::new()));
    let guards = join_all((0..8).map(|_| spawn_waiter(&mutex))).await;
    let guards: Vec<_> = guards.into_iter().map(Result::unwrap).collect();
    assert_eq!(mutex.inspect().await.unwrap().unwrap().count, 8);
    assert!(guards.iter().all(|guard| guard.state().is_held()));
    drop(guards);
    eventually_async(SOON, async || mutex.inspect().await.unwrap().is_none()).await;
}

pub(super) async fn without_an_owner_there_is_no_re_entry(fixture: Fixture) {
    let mutex = fixture.mutex("stranger").await;
    let guard = mutex.lock().await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_none());
    let scoped = Owner::new()
        .scope(async { mutex.try_lock().await.unwrap() })
        .await;
    assert!(scoped.is_none());
    guard.release().await.unwrap();
}

/// The release is sent first, so the request is not refused.
pub(super) async fn a_drop_releases_before_the_next_request(fixture: Fixture) {
    let mutex = fixture.mutex("drop").await;
    for _ in 0..50 {
        let guard = mutex.try_lock().await.unwrap();
        assert!(guard.is_some());
        drop(guard);
    }
}

pub(super) async fn a_stale_guard_does_not_affect_the_new_holder(fixture: Fixture) {
    let name = fresh_name("stale");
    let (old, new) = (fixture.client().await, fixture.client().await);
    let short = Duration::from_millis(150);
    let stale = old.mutex(&name).unwrap();
    let stale = with_options(&stale, LeaseOptions::new().fixed(short))
        .lock()
        .await
        .unwrap();
    let guard = new.mutex(&name).unwrap().lock().await.unwrap();
    assert_eq!(stale.state(), State::Lost(Cause::Expired));
    assert!(guard.token() > stale.token());
    assert_eq!(stale.release().await.unwrap_err().kind(), ErrorKind::Lost);
    let holder = new.mutex(&name).unwrap().inspect().await.unwrap().unwrap();
    assert_eq!(holder.lease, guard.lease_id());
    guard.release().await.unwrap();
}

pub(super) async fn a_revocation_makes_the_holder_lost(fixture: Fixture) {
    let name = fresh_name("revoked");
    let (holder, operator) = (fixture.client().await, fixture.client().await);
    let mutex = holder.mutex(&name).unwrap();
    let guard = mutex.lock().await.unwrap();
    let operated = operator.mutex(&name).unwrap();
    let cut_off = operated.revoke().await.unwrap().unwrap();
    assert_eq!(cut_off.lease, guard.lease_id());
    assert_eq!(cut_off.token, Some(guard.token()));
    assert_eq!(operated.revoke().await.unwrap(), None);
    assert_eq!(guard.lost().await, fixture.revocation());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

pub(super) async fn run_releases_after_a_value_and_after_a_panic(fixture: Fixture) {
    let mutex = fixture.mutex("run").await;
    let token = mutex.run(async |lease| lease.token()).await.unwrap();
    assert!(mutex.inspect().await.unwrap().is_none());

    let panicking = mutex.clone();
    let work = tokio::spawn(async move {
        let work = async |_: &leasehold::Guard| -> u8 { panic!("the work fails, on purpose") };
        panicking.run(work).await
    });
    assert!(work.await.unwrap_err().is_panic());
    let again = mutex.lock_timeout(SOON).await.unwrap().unwrap();
    assert!(again.token() > token);
    again.release().await.unwrap();
}

pub(super) async fn run_drops_the_work_when_the_lease_is_lost(fixture: Fixture) {
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let mutex = fixture.mutex("cut").await;
    let short = with_options(&mutex, LeaseOptions::new().fixed(Duration::from_secs(4)));
    for with_guard in [false, true] {
        let dropped = Arc::new(AtomicBool::new(false));
        let mark = Dropped(Arc::clone(&dropped));
        let work = async move || {
            let _mark = mark;
            std::future::pending::<()>().await;
        };
        let error = if with_guard {
            let guard = short.lock().await.unwrap();
            assert_eq!(guard.run(async { 7 }).await.unwrap(), 7);
            guard.run(work()).await.unwrap_err()
        } else {
            short.run(async |_| work().await).await.unwrap_err()
        };
        assert_eq!(error.kind(), ErrorKind::Lost);
        assert!(dropped.load(Ordering::SeqCst));
    }
}

pub(super) async fn shutdown_releases_everything(fixture: Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let names: Vec<_> = (0..20).map(|_| fresh_name("shutdown")).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(client.mutex(name).unwrap().lock().await.unwrap());
    }
    let released = client.shutdown(SOON).await.unwrap();
    assert_eq!(released, names.len());
    for (name, guard) in names.iter().zip(&guards) {
        let holder = other.mutex(name).unwrap().inspect().await.unwrap();
        assert_eq!(holder, None);
        assert_eq!(guard.state(), State::Lost(Cause::Released));
    }
}

pub(super) async fn a_lease_of_each_kind_that_is_held_too_long_is_lost_and_passes_on(
    fixture: Fixture,
) {
    let ttl = Duration::from_secs(9);
    let client = fixture.client_with_ttl(ttl).await;
    let other = fixture.client().await;
    let mutex = client.mutex("long").unwrap();
    let error = mutex
        .with(LeaseOptions::new().max_hold(ttl / 2))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    let kinds = Kind::all_of(&fixture).await.into_iter();
    join_all(kinds.map(async |kind| {
        let name = fresh_name("long");
        let max_hold = LeaseOptions::new().max_hold(ttl);
        let held = kind.lock(&client, &name, max_hold).await.unwrap();
        let mut states = held.states();
        let mut observed = Vec::new();
        while let Some(state) = states.next().await {
            observed.push(state.kind());
        }
        // A busy machine may add others.
        let last = [StateKind::Jeopardy, StateKind::Lost].map(|state| state(Cause::HeldTooLong));
        assert!(observed.ends_with(&last), "{kind:?}: {observed:?}");
        let next = kind.rival().lock(&other, &name, LeaseOptions::new());
        assert!(next.await.unwrap().token() > held.token(), "{kind:?}");
    }))
    .await;
}
