//! Semaphores, read-write locks and sets of locks, as clients use them.

use std::sync::Arc;
use std::time::Duration;

use leasehold::__private::store::Feature;
use leasehold::{
    Cause, Client, ErrorKind, LeaseKind, LeaseOptions, Mutex, RwLock, Semaphore, State, Token,
};
use leasehold_core::Access;
use leasehold_testkit::eventually_async;
use tokio::time::timeout;

use super::assert_conflict;
use crate::fixture::{Fixture, fresh_name};
use crate::leftovers::nothing_is_left;
use crate::recording_store::{RecordingStore, Valve};
use crate::store_client::{access, acquire, assert_error, granted, permits, rejected};
use crate::waiters::{SOON, soon, spawn_polled};

/// Longer than readers of a process share a lease, and shorter than all else that is timed.
const WINDOW_OVER: Duration = Duration::from_millis(40);

/// The same semaphore of some clients.
async fn semaphores<const CLIENTS: usize>(
    fixture: &Fixture,
    permits: u32,
) -> [(Client, Semaphore); CLIENTS] {
    let name = fresh_name("permits");
    let clients = fixture.clients::<CLIENTS>().await;
    clients.map(|client| {
        let semaphore = client.semaphore(&name, permits).unwrap();
        (client, semaphore)
    })
}

/// The same read-write lock of some clients.
async fn rw_locks<const CLIENTS: usize>(fixture: &Fixture) -> [(Client, RwLock); CLIENTS] {
    let name = fresh_name("rw");
    let clients = fixture.clients::<CLIENTS>().await;
    clients.map(|client| {
        let lock = client.rw_lock(&name).unwrap();
        (client, lock)
    })
}

/// How many wait for the lock with this name. `None`: it is free.
async fn waiting(client: &Client, name: &str) -> Option<usize> {
    let info = client.mutex(name).unwrap().inspect().await.unwrap();
    info.map(|info| info.waiters.len())
}

/// Checks that a wait of 400 ms ends without a guard. One in which the store does not reply is repeated.
async fn times_out<G>(wait: impl AsyncFn(Duration) -> leasehold::Result<Option<G>>) {
    eventually_async(SOON, async || {
        let waited = wait(Duration::from_millis(400)).await;
        assert!(!matches!(waited, Ok(Some(_))));
        waited.is_ok()
    })
    .await;
}

/// By a client, and by a store below it.
pub(super) async fn shared_locks_are_made_or_refused_with_a_reason(fixture: Fixture) {
    let (client, store) = (fixture.client().await, fixture.store().await);
    let names = ["permits", "access"].map(fresh_name);
    let [semaphore, rw_lock] = names.each_ref().map(|name| acquire(name, 1));
    for (feature, made, request) in [
        (
            Feature::Semaphores,
            client.semaphore(&names[0], 2).map(drop),
            permits(semaphore, 1, 2),
        ),
        (
            Feature::RwLocks,
            client.rw_lock(&names[1]).map(drop),
            access(rw_lock, Access::Read),
        ),
    ] {
        let Some(reason) = store.capabilities().kind.refusal(feature) else {
            made.unwrap();
            granted(&*store, request).await;
            continue;
        };
        for error in [made.unwrap_err(), rejected(&*store, request).await] {
            assert_error(&error, ErrorKind::Unsupported, &[reason]);
        }
    }
}

pub(super) async fn permits_are_shared_and_waited_for_in_order(fixture: Fixture) {
    let [(first, a), (second, b)] = semaphores(&fixture, 3).await;
    let one = a.acquire().await.unwrap();
    let two = a.acquire_many(2).await.unwrap();
    assert!(two.token() > one.token());
    assert!(a.try_acquire().await.unwrap().is_none());
    assert_eq!(b.available_permits().await.unwrap(), 0);
    times_out(async |limit| b.acquire_timeout(limit).await).await;
    // Its place is given up behind the reply.
    eventually_async(SOON, async || waiting(&second, b.name()).await == Some(0)).await;

    let heavy = b.clone();
    let heavy = spawn_polled(async move { heavy.acquire_many(3).await.unwrap() });
    eventually_async(SOON, async || waiting(&second, b.name()).await == Some(1)).await;
    one.release().await.unwrap();
    // A permit is free, but the other client is before this one.
    assert!(a.try_acquire().await.unwrap().is_none());
    let light = a.clone();
    let light = spawn_polled(async move { light.acquire().await.unwrap() });
    drop(two);
    let heavy = soon(heavy).await;
    assert_eq!(heavy.permits(), 3);
    heavy.release().await.unwrap();
    soon(light).await.release().await.unwrap();
    nothing_is_left(&fixture, &fixture.key(a.name()), &[&first, &second]).await;
}

pub(super) async fn many_tasks_never_hold_more_permits_than_there_are(fixture: Fixture) {
    const PERMITS: usize = 3;
    let semaphores: [_; 2] = semaphores(&fixture, 3).await;
    let inside = Arc::new(tokio::sync::Semaphore::new(PERMITS));
    let tasks: Vec<_> = (0..20)
        .map(|task: usize| {
            let semaphore = semaphores[task % 2].1.clone();
            let inside = Arc::clone(&inside);
            tokio::spawn(async move {
                for _ in 0..5 {
                    let permit = semaphore.acquire().await.unwrap();
                    let counted = inside.try_acquire().expect("one more than there are");
                    tokio::task::yield_now().await;
                    drop(counted);
                    permit.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        soon(task).await;
    }
    let [(first, semaphore), (second, _)] = &semaphores;
    nothing_is_left(&fixture, &fixture.key(semaphore.name()), &[first, second]).await;
}

pub(super) async fn numbers_are_the_smallest_that_are_free(fixture: Fixture) {
    let [(_, a), (_, b)] = semaphores(&fixture, 3).await;
    let (a, b) = (a.numbered(), b.numbered());
    let zero = a.acquire().await.unwrap();
    let one = b.acquire().await.unwrap();
    let two = a.acquire().await.unwrap();
    let numbers = [&zero, &one, &two].map(|permit| permit.number());
    assert_eq!(numbers, [Some(0), Some(1), Some(2)]);
    assert_eq!(two.floor(), Some(zero.token()));
    let next = b.clone();
    let next = spawn_polled(async move { next.acquire().await.unwrap() });
    let before = one.token();
    one.release().await.unwrap();
    let one = soon(next).await;
    assert_eq!(one.number(), Some(1));
    assert!(one.token() > before);
    zero.release().await.unwrap();
    let zero = a.acquire().await.unwrap();
    assert_eq!(zero.number(), Some(0));
    assert!(zero.floor().is_some_and(|floor| floor == two.token()));
}

pub(super) async fn a_number_of_permits_that_is_set_counts(fixture: Fixture) {
    let [(client, a), (_, b)] = semaphores(&fixture, 2).await;
    let none = client.semaphore(a.name(), 0).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::InvalidConfig);
    let both = a.acquire_many(2).await.unwrap();
    let other = client.semaphore(a.name(), 3).unwrap();
    assert_conflict(&other.acquire().await.unwrap_err(), "2 permits, not 3");
    b.set_permits(4).await.unwrap();
    assert_eq!(a.available_permits().await.unwrap(), 2);
    let more = b.acquire_many(2).await.unwrap();
    b.set_permits(1).await.unwrap();
    assert!(both.state().is_held() && more.state().is_held());
    both.release().await.unwrap();
    assert!(a.try_acquire().await.unwrap().is_none());
    more.release().await.unwrap();
    a.acquire().await.unwrap().release().await.unwrap();
    assert_conflict(&a.acquire_many(2).await.unwrap_err(), "more permits than");
}

pub(super) async fn permits_are_given_back_and_taken_by_a_resize(fixture: Fixture) {
    let [(_, a), (_, b)] = semaphores(&fixture, 4).await;
    let mut permit = a.acquire_many(3).await.unwrap();
    let token = permit.token();
    assert!(permit.resize(1).await.unwrap());
    assert!(permit.permits() == 1 && permit.token() > token);
    let others = b.acquire_many(2).await.unwrap();
    assert!(!permit.resize(3).await.unwrap());
    assert_eq!(permit.permits(), 1);
    assert!(permit.resize(2).await.unwrap());
    assert!(permit.token() > others.token());
    assert_conflict(&permit.resize(5).await.unwrap_err(), "more permits than");
    permit.release().await.unwrap();
    assert_eq!(b.available_permits().await.unwrap(), 2);
}

pub(super) async fn a_resize_that_was_dropped_is_known_at_the_next_one(fixture: Fixture) {
    let (client, recorder) = fixture.recorded(Client::builder()).await;
    let semaphore = client.semaphore(fresh_name("permits"), 4).unwrap();
    let mut permit = semaphore.acquire().await.unwrap();
    recorder.set(Valve::ClosedAfter);
    tokio::select! {
        biased;
        _ = permit.resize(2) => panic!("there was a reply"),
        () = recorder.until_stopped() => {}
    }
    recorder.set(Valve::Open);
    assert_eq!(permit.permits(), 1);
    assert_conflict(&permit.resize(5).await.unwrap_err(), "more permits than");
    assert_eq!(permit.permits(), 2);
    assert!(permit.resize(3).await.unwrap());
    assert_eq!(permit.permits(), 3);
    assert_eq!(semaphore.available_permits().await.unwrap(), 1);
    permit.release().await.unwrap();
    nothing_is_left(&fixture, &fixture.key(semaphore.name()), &[&client]).await;
}

pub(super) async fn readers_share_the_lock_and_a_writer_is_alone(fixture: Fixture) {
    let [(first, a), (second, b)] = rw_locks(&fixture).await;
    let readers = [a.read().await.unwrap(), b.read().await.unwrap()];
    assert_eq!(readers[0].token(), readers[1].token());
    assert!(b.try_write().await.unwrap().is_none());
    let writing = b.clone();
    let writing = spawn_polled(async move { writing.write().await.unwrap() });
    eventually_async(SOON, async || waiting(&second, b.name()).await == Some(1)).await;
    tokio::time::sleep(WINDOW_OVER).await;
    // Readers that come later wait for the writer.
    assert!(a.try_read().await.unwrap().is_none());
    let reading = a.clone();
    let reading = spawn_polled(async move { reading.read().await.unwrap() });
    let before = readers[0].token();
    for reader in readers {
        reader.release().await.unwrap();
    }
    let writer = soon(writing).await;
    assert!(writer.token() > before);
    assert!(a.try_read().await.unwrap().is_none());
    let token = writer.token();
    writer.release().await.unwrap();
    let reader = soon(reading).await;
    assert!(reader.token() > token);
    reader.release().await.unwrap();
    nothing_is_left(&fixture, &fixture.key(a.name()), &[&first, &second]).await;
}

pub(super) async fn readers_of_a_client_share_a_lease(fixture: Fixture) {
    let (client, recorder) = fixture.recorded(Client::builder()).await;
    let lock = client.rw_lock(fresh_name("rw")).unwrap();
    let other = fixture.client().await.rw_lock(lock.name()).unwrap();
    let mut outer = None;
    // A busy machine may let the window pass before the second reader comes.
    eventually_async(SOON, async || {
        let first = lock.read().await.unwrap();
        recorder.clear();
        let second = lock.read().await.unwrap();
        let is_shared = second.lease_id() == first.lease_id() && recorder.acquisitions() == 0;
        second.release().await.unwrap();
        match is_shared {
            true => outer = Some(first),
            false => first.release().await.unwrap(),
        }
        is_shared
    })
    .await;
    outer.unwrap().release().await.unwrap();
    // It is kept until the end of the window at most, and no longer.
    let writer = timeout(SOON, other.write()).await.unwrap().unwrap();
    writer.release().await.unwrap();
    // A writer of the same client ends the window.
    let readers = [lock.read().await.unwrap(), lock.read().await.unwrap()];
    for reader in readers {
        reader.release().await.unwrap();
    }
    let writer = lock.try_write().await.unwrap().expect("nobody reads");
    writer.release().await.unwrap();
    nothing_is_left(&fixture, &fixture.key(lock.name()), &[&client]).await;
}

pub(super) async fn a_writer_of_a_client_ends_a_window_that_begins_while_it_waits(
    fixture: Fixture,
) {
    let (client, recorder) = fixture.recorded(Client::builder()).await;
    let lock = client.rw_lock(fresh_name("rw")).unwrap();
    recorder.set(Valve::ClosedAfter);
    let (reading, writing) = (lock.clone(), lock.clone());
    let reading = spawn_polled(async move { reading.read().await.unwrap() });
    recorder.until_stopped().await;
    let writing = spawn_polled(async move { writing.write().await.unwrap() });
    recorder.set(Valve::Open);
    let reader = soon(reading).await;
    recorder.until_queued(1).await;
    assert!(lock.try_read().await.unwrap().is_none());
    reader.release().await.unwrap();
    soon(writing).await.release().await.unwrap();
    nothing_is_left(&fixture, &fixture.key(lock.name()), &[&client]).await;
}

pub(super) async fn fixed_leases_are_not_shared(fixture: Fixture) {
    let client = fixture.client().await;
    let lock = client.rw_lock(fresh_name("rw")).unwrap();
    let fixed = LeaseOptions::new().fixed(Duration::from_secs(20));
    let lock = lock.with(fixed).unwrap();
    let readers = [lock.read().await.unwrap(), lock.read().await.unwrap()];
    assert_ne!(readers[0].lease_id(), readers[1].lease_id());
    for reader in readers {
        reader.release().await.unwrap();
    }
    nothing_is_left(&fixture, &fixture.key(lock.name()), &[&client]).await;
}

pub(super) async fn an_upgrade_waits_for_the_readers_only(fixture: Fixture) {
    let [(first, a), (second, b)] = rw_locks(&fixture).await;
    let upgradable = a.upgradable_read().await.unwrap();
    let reader = b.read().await.unwrap();
    assert!(b.try_write().await.unwrap().is_none());
    times_out(async |limit| b.upgradable_read_timeout(limit).await).await;
    // Its place is given up behind the reply.
    eventually_async(SOON, async || waiting(&second, b.name()).await == Some(0)).await;
    let upgradable = upgradable.try_upgrade().await.unwrap().unwrap_err();
    let writing = b.clone();
    let writing = spawn_polled(async move { writing.write().await.unwrap() });
    eventually_async(SOON, async || waiting(&second, b.name()).await == Some(1)).await;
    let before = upgradable.token();
    let upgrade = spawn_polled(async move { upgradable.upgrade().await.unwrap() });
    eventually_async(SOON, async || waiting(&second, b.name()).await == Some(2)).await;
    reader.release().await.unwrap();
    let writer = soon(upgrade).await;
    assert!(writer.token() > before);
    let token = writer.token();
    let reader = writer.downgrade().await.unwrap();
    assert!(reader.token() > token);
    assert!(!writing.is_finished());
    reader.release().await.unwrap();
    soon(writing).await.release().await.unwrap();

    let writer = a.write().await.unwrap();
    let upgradable = writer.downgrade_to_upgradable().await.unwrap();
    let reader = b.read().await.unwrap();
    assert_eq!(reader.token(), upgradable.token());
    reader.release().await.unwrap();
    let writer = upgradable
        .try_upgrade()
        .await
        .unwrap()
        .expect("nobody reads");
    writer.release().await.unwrap();
    nothing_is_left(&fixture, &fixture.key(a.name()), &[&first, &second]).await;
}

pub(super) async fn an_upgrade_that_is_dropped_holds_nothing(fixture: Fixture) {
    let [(first, a), (second, b)] = rw_locks(&fixture).await;
    let upgradable = a.upgradable_read().await.unwrap();
    let reader = b.read().await.unwrap();
    let limit = Duration::from_millis(50);
    assert!(timeout(limit, upgradable.upgrade()).await.is_err());
    let other = timeout(SOON, b.upgradable_read()).await.unwrap().unwrap();
    other.release().await.unwrap();
    reader.release().await.unwrap();
    nothing_is_left(&fixture, &fixture.key(a.name()), &[&first, &second]).await;
}

pub(super) async fn a_revocation_ends_the_leases_of_all_holders(fixture: Fixture) {
    let [(client, a), (_, b)] = semaphores(&fixture, 2).await;
    let permits = [a.acquire().await.unwrap(), b.acquire().await.unwrap()];
    let mutex = client.mutex(a.name()).unwrap();
    assert!(mutex.revoke().await.unwrap().is_some());
    for permit in permits {
        assert_eq!(timeout(SOON, permit.lost()).await.unwrap(), Cause::Revoked);
        assert_eq!(permit.release().await.unwrap_err().kind(), ErrorKind::Lost);
    }
    a.acquire_many(2).await.unwrap().release().await.unwrap();
}

pub(super) async fn all_holders_are_described(fixture: Fixture) {
    let [(first, a), (second, b)] = semaphores(&fixture, 3).await;
    let permits = [a.acquire_many(2).await.unwrap(), b.acquire().await.unwrap()];
    let inspected = first.mutex(a.name()).unwrap().inspect().await.unwrap();
    let mut listed = first.locks().await.unwrap();
    listed.retain(|info| info.name == a.name());
    assert_eq!(listed.len(), 1);
    for info in inspected.into_iter().chain(listed) {
        assert_eq!((info.kind, info.permits), (LeaseKind::Semaphore, Some(3)));
        let mut leases = vec![(info.lease.client, info.weight)];
        let others = info.others.iter();
        leases.extend(others.map(|it| (it.lease.client, Some(it.weight))));
        leases.sort_by_key(|(_, weight)| *weight);
        assert_eq!(leases, [(second.id(), Some(1)), (first.id(), Some(2))]);
    }
    for permit in permits {
        permit.release().await.unwrap();
    }
}

/// The tokens of a set of locks.
fn tokens(guards: &leasehold::GuardSet) -> Vec<Token> {
    guards.iter().map(leasehold::Guard::token).collect()
}

pub(super) async fn a_set_is_held_as_a_whole_or_not_at_all(fixture: Fixture) {
    let (client, recorder): (_, Arc<RecordingStore>) = fixture.recorded(Client::builder()).await;
    let names = ["c", "a", "b"].map(fresh_name);
    let locks = names.each_ref().map(|name| client.mutex(name).unwrap());
    let set = client.all(locks.iter().map(Mutex::for_lock)).unwrap();
    let other = fixture.client().await;
    let others = names.each_ref().map(|name| other.mutex(name).unwrap());

    recorder.clear();
    let guards = set.lock().await.unwrap();
    match &fixture {
        // A request that busy masters do not decide in time is repeated.
        Fixture::Masters(_) => assert!(recorder.acquisitions() >= 3),
        _ => assert_eq!(recorder.acquisitions(), 3),
    }
    if fixture.servers().is_empty() {
        let mut batches = recorder.operations();
        batches.retain(|batch| batch.contains(&"acquire"));
        assert_eq!(batches.len(), 1, "one round trip");
    }
    assert_eq!(guards.len(), 3);
    assert!(guards.state().is_held() && tokens(&guards).len() == 3);
    for lock in &others {
        assert!(lock.try_lock().await.unwrap().is_none());
    }
    assert!(set.try_lock().await.unwrap().is_none());
    guards.release().await.unwrap();

    for (position, lock) in others.iter().enumerate() {
        let held = lock.lock().await.unwrap();
        assert!(set.try_lock().await.unwrap().is_none());
        // A slow store may not reply in that time, which is an error.
        let acquired = set.lock_timeout(Duration::from_millis(400)).await;
        assert!(!matches!(acquired, Ok(Some(_))), "{acquired:?}");
        for (_, free) in others.iter().enumerate().filter(|(at, _)| *at != position) {
            let free = timeout(SOON, free.lock()).await.unwrap().unwrap();
            free.release().await.unwrap();
        }
        let waiting = set.clone();
        let waiting = spawn_polled(async move { waiting.lock().await.unwrap() });
        held.release().await.unwrap();
        soon(waiting).await.release().await.unwrap();
    }

    let guards = set.lock().await.unwrap();
    locks[1].revoke().await.unwrap();
    assert_eq!(timeout(SOON, guards.lost()).await.unwrap(), Cause::Revoked);
    assert_eq!(guards.state(), State::Lost(Cause::Revoked));
    assert_eq!(
        guards.run(async {}).await.unwrap_err().kind(),
        ErrorKind::Lost
    );
    assert_eq!(guards.release().await.unwrap_err().kind(), ErrorKind::Lost);
    for name in &names {
        nothing_is_left(&fixture, &fixture.key(name), &[&client, &other]).await;
    }
}

pub(super) async fn sets_in_any_order_never_wait_for_each_other(fixture: Fixture) {
    let names = ["x", "y", "z"].map(fresh_name);
    let mut tasks = Vec::new();
    for turn in 0..3 {
        let client = fixture.client().await;
        let mut locks = names.each_ref().map(|name| client.mutex(name).unwrap());
        locks.rotate_left(turn);
        let set = client.all(locks[..2].iter().map(Mutex::for_lock)).unwrap();
        tasks.push(tokio::spawn(async move {
            for _ in 0..10 {
                let guards = set.lock().await.unwrap();
                tokio::task::yield_now().await;
                guards.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        soon(task).await;
    }
}

pub(super) async fn a_set_has_locks_of_several_kinds(fixture: Fixture) {
    let client = fixture.client().await;
    let semaphore = client.semaphore(fresh_name("permits"), 2).unwrap();
    let rw_lock = client.rw_lock(fresh_name("rw")).unwrap();
    let mutex = client.mutex(fresh_name("mutex")).unwrap();
    let set = client.all([
        semaphore.for_permits(2).unwrap(),
        rw_lock.for_read(),
        mutex.for_lock(),
        mutex.for_lock(),
    ]);
    let set = set.unwrap();
    let guards = set.lock().await.unwrap();
    assert_eq!(guards.len(), 3);
    assert_eq!(semaphore.available_permits().await.unwrap(), 0);
    assert!(guards.iter().any(|it| it.name() == rw_lock.name()));
    guards.release().await.unwrap();

    let twice = client.all([rw_lock.for_read(), rw_lock.for_write()]);
    assert_eq!(twice.unwrap_err().kind(), ErrorKind::InvalidConfig);
    let foreign = fixture.client().await.all([mutex.for_lock()]);
    assert_eq!(foreign.unwrap_err().kind(), ErrorKind::InvalidConfig);
}
