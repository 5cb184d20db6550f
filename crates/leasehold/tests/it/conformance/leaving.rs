//! Waiters that give up.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Cause, Client, ErrorKind, Guard, Mutex, State};
use leasehold_testkit::eventually_async;
use tokio::task::JoinHandle;

use crate::fixture::{Fixture, fresh_name};
use crate::leftovers::{is_subscribed, nothing_is_left};
use crate::recording_store::{RecordingStore, Valve};
use crate::waiters::{SOON, poll_once, sleeping, soon, spawn_polled, spawn_waiter};

/// Longer than a request takes, also on a busy machine.
const SHORT: Duration = Duration::from_secs(4);

type Limited = JoinHandle<Option<Guard>>;

/// A waiter with a short limit.
fn spawn_brief_waiter(mutex: &Mutex) -> Limited {
    let mutex = mutex.clone();
    spawn_polled(async move { mutex.lock_timeout(SHORT).await.unwrap() })
}

/// Cancels a task and waits for its end.
async fn cancel<T>(task: JoinHandle<T>) {
    task.abort();
    match task.await {
        Err(error) => assert!(error.is_cancelled()),
        Ok(_) => panic!("it had ended before"),
    }
}

/// Each gets the lock and gives it back, one after the other.
async fn all_are_served(waiters: impl IntoIterator<Item = JoinHandle<Guard>>) {
    for waiter in waiters {
        soon(waiter).await.release().await.unwrap();
    }
}

/// Callers give up while the store is silent. Their acquisitions would be granted to nobody.
pub(super) async fn an_abandoned_acquisition_is_not_requested(fixture: Fixture) {
    let (client, recorder) = fixture.recorded(Client::builder()).await;
    recorder.set(Valve::ClosedBefore);
    let names = (0..100).map(|_| fresh_name("unwanted"));
    let mutexes: Vec<_> = names.map(|name| client.mutex(name).unwrap()).collect();
    let mut waiting: Vec<_> = mutexes.iter().map(|it| Box::pin(it.lock())).collect();
    for waiter in &mut waiting {
        assert!(poll_once(waiter).is_pending());
    }
    recorder.until_stopped().await;
    drop(waiting);
    recorder.set(Valve::Open);
    for mutex in &mutexes {
        eventually_async(SOON, async || mutex.inspect().await.unwrap().is_none()).await;
    }
    // A few were on their way.
    assert!(recorder.acquisitions() < 10, "{:?}", recorder.operations());
}

pub(super) async fn a_timeout_in_the_local_queue_affects_no_other_waiter(fixture: Fixture) {
    let name = fresh_name("middle");
    let (client, recorder) = fixture.recorded(Client::builder()).await;
    let mutex = client.mutex(&name).unwrap();
    let elsewhere = fixture.client().await.mutex(&name).unwrap();
    for holder in [&mutex, &elsewhere] {
        let guard = holder.lock().await.unwrap();
        recorder.clear();
        let mut waiters = Vec::new();
        let mut limited = Vec::new();
        for _ in 0..3 {
            waiters.push(spawn_waiter(&mutex));
            limited.push(spawn_brief_waiter(&mutex));
        }
        for limited in limited {
            assert!(soon(limited).await.is_none());
        }
        // Masters that are late to store the record of the holder notify once more. Busy ones do not decide a request
        // in time.
        let may_repeat = matches!(fixture, Fixture::Masters(_));
        let operations = recorder.operations();
        assert!(may_repeat || recorder.acquisitions() <= 1, "{operations:?}");
        guard.release().await.unwrap();
        all_are_served(waiters).await;
        nothing_is_left(&fixture, &fixture.key(&name), &[&client]).await;
    }
}

pub(super) async fn a_head_that_times_out_passes_its_position_on(fixture: Fixture) {
    let name = fresh_name("place");
    let holder = fixture.client().await.mutex(&name).unwrap();
    let (client, recorder) = fixture.recorded(Client::builder()).await;
    let (rival, rival_recorder) = fixture.recorded(Client::builder()).await;
    let mutex = client.mutex(&name).unwrap();
    let guard = holder.lock().await.unwrap();
    let limited = spawn_brief_waiter(&mutex);
    let waiter = spawn_waiter(&mutex);
    recorder.until_queued(1).await;
    let competing = spawn_waiter(&rival.mutex(&name).unwrap());
    rival_recorder.until_queued(1).await;
    assert!(soon(limited).await.is_none());
    guard.release().await.unwrap();
    let first = soon(waiter).await;
    assert!(!competing.is_finished());
    let token = first.token();
    first.release().await.unwrap();
    let second = soon(competing).await;
    assert!(second.token() > token);
    second.release().await.unwrap();
    nothing_is_left(&fixture, &fixture.key(&name), &[&client, &rival]).await;
}

/// A lock that another client holds, and a client that waits for it.
struct Scenario {
    guard: Guard,
    client: Client,
    recorder: Arc<RecordingStore>,
    mutex: Mutex,
}

impl Scenario {
    async fn new(fixture: &Fixture) -> Self {
        let name = fresh_name("scenario");
        let holder = fixture.client().await.mutex(&name).unwrap();
        let (client, recorder) = fixture.recorded(Client::builder()).await;
        let mutex = client.mutex(&name).unwrap();
        let guard = holder.lock().await.unwrap();
        Self {
            guard,
            client,
            recorder,
            mutex,
        }
    }

    /// The remaining waiters are served, and leave nothing.
    async fn finish(self, fixture: &Fixture, waiters: impl IntoIterator<Item = JoinHandle<Guard>>) {
        let key = fixture.key(self.guard.name());
        self.guard.release().await.unwrap();
        all_are_served(waiters).await;
        nothing_is_left(fixture, &key, &[&self.client]).await;
    }
}

pub(super) async fn a_cancelled_waiter_affects_no_other(fixture: Fixture) {
    // The head, while its request or the reply is under way.
    for valve in [Valve::ClosedBefore, Valve::ClosedAfter] {
        for behind in [0, 3] {
            let scenario = Scenario::new(&fixture).await;
            scenario.recorder.set(valve);
            let front = spawn_waiter(&scenario.mutex);
            let waiters: Vec<_> = (0..behind).map(|_| spawn_waiter(&scenario.mutex)).collect();
            scenario.recorder.until_stopped().await;
            cancel(front).await;
            scenario.recorder.set(Valve::Open);
            scenario.finish(&fixture, waiters).await;
        }
    }
    // The head with a position in the queue, and tasks behind it.
    for place in 0..4 {
        let scenario = Scenario::new(&fixture).await;
        let mut waiters: Vec<_> = (0..4).map(|_| spawn_waiter(&scenario.mutex)).collect();
        scenario.recorder.until_queued(1).await;
        cancel(waiters.remove(place)).await;
        scenario.finish(&fixture, waiters).await;
    }
    // All of them.
    let scenario = Scenario::new(&fixture).await;
    let waiters: Vec<_> = (0..4).map(|_| spawn_waiter(&scenario.mutex)).collect();
    scenario.recorder.until_queued(1).await;
    for waiter in waiters {
        cancel(waiter).await;
    }
    scenario.finish(&fixture, []).await;
}

/// The lease, or the right to ask for one, was given to a task that never takes it.
pub(super) async fn a_waiter_that_is_cancelled_at_its_turn_passes_it_on(fixture: Fixture) {
    let name = fresh_name("turn");
    let (client, recorder) = fixture.recorded(Client::builder().handoff_time(SOON)).await;
    let mutex = client.mutex(&name).unwrap();
    for behind in [0, 2] {
        // The turn of the head, with the request under way already.
        let guard = mutex.lock().await.unwrap();
        let sleeper = sleeping(&mutex);
        let waiters: Vec<_> = (0..behind).map(|_| spawn_waiter(&mutex)).collect();
        guard.release().await.unwrap();
        drop(sleeper);
        all_are_served(waiters).await;
        nothing_is_left(&fixture, &fixture.key(&name), &[&client]).await;

        // The lease itself.
        let guard = mutex.lock().await.unwrap();
        let next = spawn_waiter(&mutex);
        let sleepers = [sleeping(&mutex), sleeping(&mutex)];
        let waiters: Vec<_> = (0..behind).map(|_| spawn_waiter(&mutex)).collect();
        guard.release().await.unwrap();
        let next = soon(next).await;
        let lease = next.lease_id();
        recorder.clear();
        next.release().await.unwrap();
        recorder.assert_silent();
        drop(sleepers);
        for waiter in waiters {
            let guard = soon(waiter).await;
            assert_eq!(guard.lease_id(), lease);
            guard.release().await.unwrap();
        }
        nothing_is_left(&fixture, &fixture.key(&name), &[&client]).await;
    }
}

pub(super) async fn a_client_is_subscribed_until_it_is_dropped(fixture: Fixture) {
    let scenario = Scenario::new(&fixture).await;
    let waiter = spawn_waiter(&scenario.mutex);
    scenario.recorder.until_queued(1).await;
    let (id, namespace) = (scenario.client.id(), fixture.namespace("leasehold"));
    let is_subscribed = || is_subscribed(&fixture, &namespace, id);
    assert!(matches!(fixture, Fixture::Local(_)) || is_subscribed());
    scenario.finish(&fixture, [waiter]).await;
    eventually_async(SOON, async || !is_subscribed()).await;
}

/// A client that is shut down releases what it holds, and its own waiters, for its own lock and for that of another,
/// delay no other client.
pub(super) async fn a_shutdown_delays_no_other_client(fixture: Fixture) {
    let client = fixture.client().await;
    let (other, recorder) = fixture.recorded(Client::builder()).await;
    let [name, elsewhere] = [fresh_name("shutdown"), fresh_name("elsewhere")];
    let [mutex, wanted] = [&name, &elsewhere].map(|name| client.mutex(name).unwrap());
    let guard = mutex.lock().await.unwrap();
    let held = other.mutex(&elsewhere).unwrap().lock().await.unwrap();
    let mut own = [&mutex, &mutex, &wanted, &wanted].map(|mutex| (mutex, Box::pin(mutex.lock())));
    for (_, waiter) in &mut own {
        assert!(poll_once(waiter).is_pending());
    }
    let competing = spawn_waiter(&other.mutex(&name).unwrap());
    recorder.until_queued(1).await;
    client.shutdown(SOON).await.unwrap();
    assert_eq!(guard.state(), State::Lost(Cause::Released));
    let competitor = soon(competing).await;
    assert!(competitor.token() > guard.token());
    for (mutex, waiter) in own {
        for error in [
            waiter.await.unwrap_err(),
            mutex.try_lock().await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::ShutDown);
            assert!(error.to_string().contains(mutex.name()), "{error}");
        }
    }
    competitor.release().await.unwrap();
    held.release().await.unwrap();
    for name in [name, elsewhere] {
        nothing_is_left(&fixture, &fixture.key(&name), &[&client, &other]).await;
    }
}
