//! Hand-off of leases between tasks of a client.

use std::time::{Duration, Instant};

use leasehold::{Cause, Client, ClientBuilder, ErrorKind, Guard, LeaseOptions, Mutex, Owner};
use leasehold_testkit::eventually_async;
use tokio::task::JoinHandle;

use crate::fixture::{Fixture, fresh_name, with_options};
use crate::recording_store::{RecordingStore, Valve};
use crate::waiters::{SOON, poll_once, sleeping, soon, spawn_waiter};

/// The time after its request from which a client may not accept a grant.
const LATE: Duration = Duration::from_millis(800);

/// A client that hands its leases off however long that takes.
fn unlimited() -> ClientBuilder {
    Client::builder().handoff_time(SOON)
}

/// A lease with a block of tokens, and its local waiters in their order.
///
/// The first task has one token only, because no other waits at its request.
async fn followed(mutex: &Mutex, waiters: &[&Mutex]) -> (Guard, Vec<JoinHandle<Guard>>) {
    let stranger = with_options(mutex, LeaseOptions::new().owner(&Owner::new()));
    let alone = stranger.lock().await.unwrap();
    let next = spawn_waiter(mutex);
    let waiters = waiters.iter().map(|mutex| spawn_waiter(mutex)).collect();
    alone.release().await.unwrap();
    (soon(next).await, waiters)
}

/// The next holder, whose token is larger. Returns whether it has the same lease.
async fn next_holder(guard: Guard, waiter: JoinHandle<Guard>) -> (bool, Guard) {
    let (lease, token) = (guard.lease_id(), guard.token());
    guard.release().await.unwrap();
    let next = soon(waiter).await;
    assert!(next.token() > token);
    (next.lease_id() == lease, next)
}

pub(super) async fn a_lease_is_handed_off_without_the_store(fixture: Fixture) {
    let (client, recorder) = fixture.recorded(unlimited()).await;
    let mutex = client.mutex(fresh_name("handoff")).unwrap();
    let (mut guard, waiters) = followed(&mutex, &[&mutex; 20]).await;
    assert_operations(&fixture, &recorder, &["acquire", "release", "acquire"]);
    recorder.clear();
    for waiter in waiters {
        let same;
        (same, guard) = next_holder(guard, waiter).await;
        assert!(same && guard.state().is_held());
    }
    recorder.assert_silent();
    // What the store believes is the same all the time.
    let holder = mutex.inspect().await.unwrap().unwrap();
    assert_eq!((holder.lease, holder.count), (guard.lease_id(), 1));
    assert!(holder.token > Some(guard.token()), "no token is left");
    guard.release().await.unwrap();
    assert_eq!(recorder.operations(), [["release"]]);
    assert!(mutex.inspect().await.unwrap().is_none());
    // Even a token that was never given out is smaller than the next lease's.
    let next = mutex.lock().await.unwrap();
    assert!(next.token() > holder.token.unwrap());
}

/// Release and acquisition travel together, behind the waiters of other clients.
pub(super) async fn after_the_limit_of_handoffs_the_process_joins_the_queue_again(
    fixture: Fixture,
) {
    let name = fresh_name("turns");
    let (client, recorder) = fixture.recorded(unlimited().handoff_max(3)).await;
    let (rival, rival_recorder) = fixture.recorded(Client::builder()).await;
    let mutex = client.mutex(&name).unwrap();
    let rival = rival.mutex(&name).unwrap();
    let (mut guard, mut waiters) = followed(&mutex, &[&mutex; 9]).await;
    for round in 1..=2 {
        let competing = spawn_waiter(&rival);
        rival_recorder.until_queued(round).await;
        recorder.clear();
        for _ in 0..3 {
            guard.release().await.unwrap();
            guard = soon(waiters.remove(0)).await;
        }
        recorder.assert_silent();
        let (token, begun) = (guard.token(), Instant::now());
        guard.release().await.unwrap();
        let competitor = soon(competing).await;
        assert!(competitor.token() > token);
        assert_eq!(recorder.operations(), [["release", "acquire"]]);
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        let token = competitor.token();
        competitor.release().await.unwrap();
        guard = soon(waiters.remove(0)).await;
        assert!(guard.token() > token);
        // It was a pushed grant: only the acquisition with the release was sent. A busy machine may be too late to accept it.
        let is_late = begun.elapsed() >= LATE;
        assert!(
            recorder.acquisitions() == 1 || is_late,
            "{:?}",
            recorder.operations()
        );
    }
    drop((guard, waiters));
}

pub(super) async fn it_can_be_switched_off(fixture: Fixture) {
    let off = [
        unlimited().handoff_max(0),
        Client::builder().handoff_time(Duration::ZERO),
    ];
    for builder in off {
        let (client, recorder) = fixture.recorded(builder).await;
        let mutex = client.mutex(fresh_name("off")).unwrap();
        is_not_handed_off(&fixture, &recorder, &mutex, &[&mutex; 3]).await;
    }
}

/// Checks the operations so far, of which a release and the next acquisition are one batch. At many masters a client
/// pauses between the two after a turn of some time, and repeats a request that they have not decided in time.
fn assert_operations(fixture: &Fixture, recorder: &RecordingStore, expected: &[&str]) {
    let batches = recorder.operations();
    let operations = batches.concat();
    match fixture {
        Fixture::Masters(_) => assert!(operations.starts_with(expected), "{batches:?}"),
        _ => {
            assert_eq!(operations, expected);
            assert!(batches.contains(&vec!["release", "acquire"]), "{batches:?}");
        }
    }
}

/// Checks that each of these waiters has a lease of its own.
async fn is_not_handed_off(
    fixture: &Fixture,
    recorder: &RecordingStore,
    mutex: &Mutex,
    waiters: &[&Mutex],
) {
    let (mut guard, waiters) = followed(mutex, waiters).await;
    for waiter in waiters {
        recorder.clear();
        let same;
        (same, guard) = next_holder(guard, waiter).await;
        assert!(!same);
        assert_operations(fixture, recorder, &["release", "acquire"]);
    }
    guard.release().await.unwrap();
}

pub(super) async fn only_a_renewed_lease_is_handed_off_to_a_task_that_wants_the_same(
    fixture: Fixture,
) {
    let (client, recorder) = fixture.recorded(unlimited()).await;
    let ttl = Duration::from_secs(20);
    let renewed = client.mutex(fresh_name("alike")).unwrap();
    let fixed = renewed.with(LeaseOptions::new().fixed(ttl)).unwrap();
    let other = renewed.with(LeaseOptions::new().ttl(ttl)).unwrap();
    let pairs = [
        (&renewed, &fixed),
        (&renewed, &other),
        (&other, &renewed),
        (&fixed, &renewed),
        (&fixed, &fixed),
    ];
    for (first, second) in pairs {
        is_not_handed_off(&fixture, &recorder, first, &[second, first]).await;
    }
    // Nor from a fixed hold inside a renewed lease.
    let owner = Owner::new();
    let (renewed, fixed) = (
        renewed.with(LeaseOptions::new().owner(&owner)).unwrap(),
        fixed.with(LeaseOptions::new().owner(&owner)).unwrap(),
    );
    let stranger = client.mutex(renewed.name()).unwrap();
    let (outer, waiters) = followed(&renewed, &[&stranger]).await;
    let inner = fixed.lock().await.unwrap();
    let lease = outer.lease_id();
    assert_eq!(inner.lease_id(), lease);
    recorder.clear();
    outer.release().await.unwrap();
    inner.release().await.unwrap();
    for waiter in waiters {
        assert_ne!(soon(waiter).await.lease_id(), lease);
    }
}

pub(super) async fn a_lease_is_handed_off_after_its_last_hold(fixture: Fixture) {
    let client = fixture.client_with(unlimited()).await;
    let stranger = client.mutex(fresh_name("last")).unwrap();
    let owned = with_options(&stranger, LeaseOptions::new().owner(&Owner::new()));
    let count = async || stranger.inspect().await.unwrap().unwrap().count;

    let (outer, mut waiters) = followed(&owned, &[&stranger]).await;
    let inner = owned.lock().await.unwrap();
    assert_eq!(inner.lease_id(), outer.lease_id());
    assert_eq!(count().await, 2);
    let token = outer.token();
    outer.release().await.unwrap();
    assert_eq!(count().await, 1);
    // The owner still holds it, so it enters again before the waiters.
    let again = owned.try_lock().await.unwrap().unwrap();
    assert_eq!((again.lease_id(), again.token()), (inner.lease_id(), token));
    again.release().await.unwrap();
    assert!(!waiters[0].is_finished());
    inner.release().await.unwrap();
    let next = soon(waiters.remove(0)).await;
    assert!(next.token() > token);
    assert_eq!(count().await, 1);

    // The lease is a stranger's now, whatever it was before.
    assert!(owned.try_lock().await.unwrap().is_none());
    let back = spawn_waiter(&owned);
    let behind = spawn_waiter(&stranger);
    assert_eq!(count().await, 1);
    let lease = next.lease_id();
    next.release().await.unwrap();
    let back = soon(back).await;
    // It came back to the owner by a second hand-off, and is entered again.
    assert_eq!(back.lease_id(), lease);
    let inner = owned.try_lock().await.unwrap().unwrap();
    assert_eq!(inner.token(), back.token());
    assert_eq!(count().await, 2);
    drop((back, inner));
    let behind = soon(behind).await;
    assert_eq!(behind.lease_id(), lease);
    behind.release().await.unwrap();
    eventually_async(SOON, async || stranger.inspect().await.unwrap().is_none()).await;
}

/// A task of the owner is about to enter, and has its turn when the lease is another's.
pub(super) async fn a_lease_that_was_handed_off_is_not_entered_again(fixture: Fixture) {
    let (client, recorder) = fixture.recorded(unlimited()).await;
    let stranger = client.mutex(fresh_name("late")).unwrap();
    let owned = with_options(&stranger, LeaseOptions::new().owner(&Owner::new()));
    let (outer, mut waiters) = followed(&owned, &[&stranger]).await;
    // One task enters, with its request under way. Another waits for that.
    recorder.set(Valve::ClosedBefore);
    let entering = spawn_waiter(&owned);
    recorder.until_stopped().await;
    let mut late = sleeping(&owned);
    recorder.set(Valve::Open);
    let inner = soon(entering).await;
    assert_eq!(inner.lease_id(), outer.lease_id());
    inner.release().await.unwrap();
    outer.release().await.unwrap();
    let next = soon(waiters.remove(0)).await;
    let token = next.token();

    assert!(poll_once(&mut late).is_pending());
    let late = tokio::spawn(late);
    next.release().await.unwrap();
    let late = soon(late).await;
    assert!(late.token() > token);
    assert_eq!(stranger.inspect().await.unwrap().unwrap().count, 1);
    late.release().await.unwrap();
    assert!(stranger.inspect().await.unwrap().is_none());
}

/// The lease is deleted while it is on its way through the tasks of a process.
pub(super) async fn a_revocation_ends_the_chain(fixture: Fixture) {
    let name = fresh_name("chain");
    let client = fixture.client_with(unlimited()).await;
    let (rival, rival_recorder) = fixture.recorded(Client::builder()).await;
    let mutex = client.mutex(&name).unwrap();
    let (guard, mut waiters) = followed(&mutex, &[&mutex; 4]).await;
    guard.release().await.unwrap();
    let cut_off = soon(waiters.remove(0)).await;
    let rival = rival.mutex(&name).unwrap();
    let competing = spawn_waiter(&rival);
    rival_recorder.until_queued(1).await;

    let found = rival.revoke().await.unwrap().unwrap();
    assert_eq!(found.lease, cut_off.lease_id());
    // The queue is served first.
    let competitor = soon(competing).await;
    assert!(competitor.token() > cut_off.token());
    let lost = tokio::time::timeout(SOON, cut_off.lost()).await.unwrap();
    assert_eq!(lost, Cause::Revoked);
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    let mut token = competitor.token();
    competitor.release().await.unwrap();
    // Everybody else by a new lease, although the guard of the old one lives.
    for waiter in waiters {
        let guard = soon(waiter).await;
        assert_ne!(guard.lease_id(), cut_off.lease_id());
        assert!(guard.token() > token);
        assert!(guard.state().is_held());
        token = guard.token();
        guard.release().await.unwrap();
    }
    let error = cut_off.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(mutex.inspect().await.unwrap().is_none());
}
