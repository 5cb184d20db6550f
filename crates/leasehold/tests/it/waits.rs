//! How long waiters wait and how often they send requests, on a clock that the tests move.

use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use leasehold::__private::store::{MemoryStore, Store};
use leasehold::clock::Clock as _;
use leasehold::{Client, ErrorKind, Guard, LeaseOptions, Mutex, Result, Token};
use leasehold_testkit::eventually_async;
use tokio::task::JoinHandle;
use tracing::Level;

use crate::differential::corrupting_store::{CorruptingStore, Corruption};
use crate::faulty_store::{FaultMode, TIMEOUT};
use crate::fixture::with_options;
use crate::harness::{Harness, SECOND, TTL, poll_once, settle};
use crate::isolation::listeners::Logs;
use crate::recording_store::{RecordingStore, Valve};
use crate::waiters::{SOON, soon, spawn_polled, spawn_waiter};

/// With its first lease, or when it begins to wait in the queue; not for an attempt.
#[tokio::test]
async fn a_client_is_registered_once_and_not_for_an_attempt() {
    let harness = Harness::new();
    let guard = harness.mutex().lock().await.unwrap();
    settle().await;
    assert_eq!(harness.recorder.registrations(), 1);
    let other = harness.another();
    assert!(other.mutex().try_lock().await.unwrap().is_none());
    settle().await;
    assert_eq!(other.recorder.registrations(), 0);
    let waiters = [(); 3].map(|()| spawn_waiter(&other.mutex()));
    other.recorder.until_queued(1).await;
    settle().await;
    assert_eq!(other.recorder.registrations(), 1);
    guard.release().await.unwrap();
    for waiter in waiters {
        soon(waiter).await.release().await.unwrap();
    }
    settle().await;
    assert_eq!(other.recorder.registrations(), 1);
}

/// A hundred clients wait for a holder that renews its lease.
#[tokio::test]
async fn a_waiter_repeats_its_request_once_in_a_ttl() {
    const CLIENTS: usize = 100;
    const TTLS: u32 = 5;
    let harness = Harness::new();
    let guard = harness.mutex().lock().await.unwrap();
    let clients: Vec<_> = (0..CLIENTS).map(|_| harness.another()).collect();
    let (mut heads, mut others) = (Vec::new(), Vec::new());
    for (number, client) in clients.iter().enumerate() {
        heads.push(brief_hold(client));
        client.recorder.until_queued(1).await;
        // Some have further tasks in their local queues, which send nothing.
        others.extend((0..number % 3).map(|_| brief_hold(client)));
        harness.advance(TTL / 150).await;
    }
    for client in &clients {
        client.recorder.clear();
    }
    for _ in 0..TTLS * 30 {
        harness.advance(TTL / 30).await;
        assert!(guard.state().is_held());
    }
    let requests = acquisitions(&clients);
    let most = usize::try_from(TTLS).unwrap() + 1;
    assert!(requests.iter().all(|count| *count <= most), "{requests:?}");
    let all: usize = requests.iter().sum();
    assert!(all <= CLIENTS * most - CLIENTS / 2, "{all}");
    // They still have their positions, in their order, and the others come after them.
    let mut last = guard.token();
    guard.release().await.unwrap();
    for head in heads {
        let token = soon(head).await;
        assert!(token > last);
        last = token;
    }
    for other in others {
        assert!(soon(other).await > last);
    }
}

/// A waiter that releases the lock immediately, and returns its token.
fn brief_hold(harness: &Harness) -> JoinHandle<Token> {
    let mutex = harness.mutex();
    spawn_polled(async move {
        let guard = mutex.lock().await.unwrap();
        let token = guard.token();
        guard.release().await.unwrap();
        token
    })
}

/// The number of acquisitions that each client has sent.
fn acquisitions(clients: &[Harness]) -> Vec<usize> {
    let clients = clients.iter();
    clients
        .map(|client| client.recorder.acquisitions())
        .collect()
}

/// Only the head repeats its request at the end of the lease.
#[tokio::test]
async fn a_holder_that_died_is_succeeded_by_the_head() {
    let harness = Harness::new();
    let lease = SECOND * 10;
    let mutex = with_options(&harness.mutex(), LeaseOptions::new().fixed(lease));
    std::mem::forget(mutex.lock().await.unwrap());
    let clients: Vec<_> = (0..5).map(|_| harness.another()).collect();
    let mut waiters = Vec::new();
    for client in &clients {
        waiters.push(spawn_waiter(&client.mutex()));
        client.recorder.until_queued(1).await;
    }
    let mut waited = Duration::ZERO;
    while !waiters[0].is_finished() {
        assert!(waited < lease + SECOND / 2, "not served");
        waited += SECOND / 10;
        harness.advance(SECOND / 10).await;
    }
    assert!(waited >= lease);
    assert_eq!(acquisitions(&clients), [2, 1, 1, 1, 1]);
    for waiter in waiters {
        soon(waiter).await.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_lease_is_handed_off_for_so_long_and_no_longer() {
    let harness = Harness::new();
    let duration = Duration::from_millis(20);
    let mutex = harness.mutex();
    let alone = mutex.lock().await.unwrap();
    let mut waiters: Vec<_> = (0..6).map(|_| spawn_waiter(&mutex)).collect();
    alone.release().await.unwrap();
    for _ in 0..2 {
        let first = soon(waiters.remove(0)).await;
        let lease = first.lease_id();
        harness.clock.advance(duration - Duration::from_millis(1));
        first.release().await.unwrap();
        let second = soon(waiters.remove(0)).await;
        assert_eq!(second.lease_id(), lease);
        harness.clock.advance(Duration::from_millis(1));
        harness.recorder.clear();
        second.release().await.unwrap();
        // The time of the next one counts from its own grant.
        assert_eq!(harness.recorder.operations(), [["release", "acquire"]]);
    }
}

/// A task without an owner that acquires a lock which it holds would never be served. A client that waits for another
/// one is not reported.
#[tokio::test]
async fn a_task_that_waits_for_its_own_client_is_reported_once() {
    let (logged, warnings) = mpsc::channel();
    let _logs = tracing::subscriber::set_default(Logs(move |event: &tracing::Event<'_>| {
        if *event.metadata().level() == Level::WARN {
            logged.send(format!("{event:?}")).unwrap();
        }
    }));
    let harness = Harness::new();
    let guard = harness.mutex().lock().await.unwrap();
    let [own, elsewhere] = [&harness, &harness.another()].map(waiting);
    for _ in 0..10 {
        harness.advance(TTL / 10).await;
        assert!(guard.state().is_held());
    }
    assert_eq!(
        warnings.try_iter().collect::<Vec<_>>(),
        Vec::<String>::new()
    );
    for _ in 0..20 {
        harness.advance(TTL / 10).await;
    }
    let found: Vec<_> = warnings.try_iter().collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("harness") && found[0].contains("Owner"),
        "{found:?}"
    );
    // For another task in its place it is another wait.
    own.abort();
    let next = waiting(&harness);
    for _ in 0..20 {
        harness.advance(TTL / 10).await;
    }
    assert_eq!(warnings.try_iter().count(), 1);
    guard.release().await.unwrap();
    let release = async |waiter| soon::<Result<Guard>>(waiter).await.unwrap().release().await;
    let (next, elsewhere) = tokio::join!(release(next), release(elsewhere));
    next.and(elsewhere).unwrap();
}

type Outcome<T> = JoinHandle<Result<T>>;

fn waiting(harness: &Harness) -> Outcome<Guard> {
    let mutex = harness.mutex();
    spawn_polled(async move { mutex.lock().await })
}

fn waiting_for(harness: &Harness, duration: Duration) -> Outcome<Option<Guard>> {
    let mutex = harness.mutex();
    spawn_polled(async move { mutex.lock_timeout(duration).await })
}

/// All tasks of a local queue fail after a ttl without a reply, not one after the other.
#[tokio::test]
async fn all_local_waiters_fail_after_a_ttl_of_an_outage() {
    for fault_mode in [FaultMode::Unreachable, FaultMode::TimesOut] {
        let harness = Harness::new();
        harness.store.set(fault_mode);
        let mut waiters: Vec<_> = (0..50).map(|_| waiting(&harness)).collect();
        let begun = harness.clock.now();
        while waiters.iter().any(|waiter| !waiter.is_finished()) {
            let waited = harness.clock.now().since(begun);
            assert!(waited < TTL + TIMEOUT * 2, "{fault_mode:?}");
            harness.advance(SECOND / 2).await;
        }
        assert!(harness.clock.now().since(begun) >= TTL);
        for waiter in waiters.drain(..) {
            let error = soon(waiter).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unreachable);
        }
        // A later task has its own limit, and is served if the outage ends before that.
        let early = waiting(&harness);
        harness.advance(TTL / 2).await;
        let late = waiting(&harness);
        for _ in 0..12 {
            harness.advance(TTL / 20).await;
        }
        assert!(early.is_finished() && !late.is_finished());
        soon(early).await.unwrap_err();
        harness.store.set(FaultMode::None);
        for _ in 0..5 {
            harness.advance(SECOND).await;
        }
        soon(late).await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_timeout_shows_whether_the_store_failed_or_the_lock_was_held() {
    let harness = Harness::new();
    // Behind a head without replies.
    harness.store.set(FaultMode::Unreachable);
    let front = waiting(&harness);
    let limited = waiting_for(&harness, SECOND);
    settle().await;
    harness.advance(SECOND).await;
    let error = soon(limited).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    harness.store.set(FaultMode::None);
    harness.advance(SECOND).await;
    let guard = soon(front).await.unwrap();

    // Behind a local holder, in any fault mode.
    for fault_mode in [FaultMode::None, FaultMode::Unreachable, FaultMode::Silent] {
        harness.store.set(fault_mode);
        let limited = waiting_for(&harness, SECOND);
        harness.advance(SECOND).await;
        assert!(soon(limited).await.unwrap().is_none());
    }
    harness.store.set(FaultMode::None);

    // Behind a refused head.
    let other = harness.another();
    let waiter = waiting(&other);
    let limited = waiting_for(&other, SECOND);
    other.recorder.until_queued(1).await;
    harness.advance(SECOND).await;
    assert!(soon(limited).await.unwrap().is_none());
    guard.release().await.unwrap();
    soon(waiter).await.unwrap().release().await.unwrap();
}

/// A task of this process held the lock until a moment ago, and the next head has no reply yet: another task, or the one
/// that times out.
#[tokio::test]
async fn a_timeout_during_a_hand_over_is_not_an_outage() {
    for others in [2, 0] {
        let harness = Harness::new();
        let guard = harness.mutex().lock().await.unwrap();
        let waiters: Vec<_> = (0..others).map(|_| waiting(&harness)).collect();
        let limited = [SECOND, SECOND].map(|duration| waiting_for(&harness, duration));
        settle().await;
        harness.store.set(FaultMode::TimesOut);
        drop(spawn_polled(guard.release()));
        settle().await;
        harness.advance(SECOND).await;
        for limited in limited {
            assert!(soon(limited).await.unwrap().is_none());
        }
        harness.store.set(FaultMode::None);
        for _ in 0..5 {
            harness.advance(SECOND).await;
        }
        for waiter in waiters {
            soon(waiter).await.unwrap().release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_set_acquires_a_lock_again_that_it_loses_while_it_waits() {
    let harness = Harness::new();
    let other = harness.another();
    let names = ["a", "b"];
    let locks = names.map(|name| harness.client.mutex(name).unwrap());
    let [first, second] = names.map(|name| other.client.mutex(name).unwrap());
    let held = second.lock().await.unwrap();
    let set = harness
        .client
        .all(locks.iter().map(Mutex::for_lock))
        .unwrap();
    let waiting = spawn_polled(async move { set.lock().await.unwrap() });
    harness.recorder.until_queued(1).await;
    assert!(first.revoke().await.unwrap().is_some());
    let taken = first.lock().await.unwrap();
    held.release().await.unwrap();
    harness.recorder.until_queued(2).await;
    // It holds nothing behind the lock that it waits for.
    let held = second.lock().await.unwrap();
    taken.release().await.unwrap();
    held.release().await.unwrap();
    let guards = soon(waiting).await;
    assert!(guards.state().is_held() && guards.len() == 2);
    guards.release().await.unwrap();
}

#[tokio::test]
async fn a_set_waits_for_a_silent_store_no_longer_than_its_limit() {
    let harness = Harness::new();
    let locks = ["a", "b"].map(|name| harness.client.mutex(name).unwrap());
    let set = harness
        .client
        .all(locks.iter().map(Mutex::for_lock))
        .unwrap();
    harness.store.set(FaultMode::Silent);
    let waiting = spawn_polled(async move { set.lock_timeout(SECOND).await });
    settle().await;
    harness.advance(SECOND).await;
    let error = soon(waiting).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
}

/// Its future is not polled again, and the store has granted it the lock without a reply so far.
#[tokio::test]
async fn a_shutdown_waits_for_the_release_of_an_acquisition_in_flight() {
    let harness = Harness::new();
    harness.recorder.set(Valve::ClosedAfter);
    let mutex = harness.mutex();
    let mut acquiring = pin!(mutex.lock());
    assert!(poll_once(acquiring.as_mut()).await.is_none());
    let client = harness.client.clone();
    let shutdown = tokio::spawn(async move { client.shutdown(SECOND).await });
    settle().await;
    assert!(!shutdown.is_finished());
    harness.recorder.set(Valve::Open);
    assert_eq!(shutdown.await.unwrap().unwrap(), 0);
    assert!(harness.stranger().inspect().await.unwrap().is_none());
    assert_eq!(acquiring.await.unwrap_err().kind(), ErrorKind::ShutDown);
}

#[tokio::test]
async fn a_shutdown_waits_for_a_release_that_another_task_waits_for() {
    let harness = Harness::new();
    let guard = harness.mutex().lock().await.unwrap();
    harness.recorder.set(Valve::ClosedBefore);
    let release = spawn_polled(guard.release());
    harness.recorder.until_stopped().await;
    let client = harness.client.clone();
    let shutdown = spawn_polled(async move { client.shutdown(SECOND).await });
    settle().await;
    assert!(!shutdown.is_finished());
    harness.recorder.set(Valve::Open);
    assert_eq!(soon(shutdown).await.unwrap(), 0);
    soon(release).await.unwrap();
}

/// As in a store whose clients cannot be notified.
#[tokio::test]
async fn an_upgrade_that_cannot_wait_in_the_queue_is_repeated() {
    let corrupting = CorruptingStore::new(MemoryStore::new(), Corruption::Conversion);
    let store: Arc<dyn Store> = Arc::new(corrupting);
    let recorder = RecordingStore::on(Arc::clone(&store));
    let stores = [Arc::clone(&recorder) as Arc<dyn Store>, store];
    let [first, second] = stores.map(|store| {
        let client = Client::builder().build(store).unwrap();
        client.rw_lock("lock").unwrap()
    });
    let upgradable = first.upgradable_read().await.unwrap();
    let reader = second.read().await.unwrap();
    let upgrade = spawn_polled(async move { upgradable.upgrade().await });
    let is_repeated = async || {
        let operations = recorder.operations();
        let converts = operations.iter().flatten().filter(|it| **it == "convert");
        converts.count() > 1
    };
    eventually_async(SOON, is_repeated).await;
    reader.release().await.unwrap();
    soon(upgrade).await.unwrap().release().await.unwrap();
}
