//! A holder of the public library that a node watches: the state of its lease after a pause.
//!
//! The pauses are jumps of the holder's clock, which no other process has.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::clock::ManualClock;
use leasehold::watchdog::Watchdog;
use leasehold::{Cause, Client, ErrorKind, Mutex, State, StateKind};
use leasehold_testkit::{eventually, eventually_async, kill};
use leasehold_watchdog::Node;

use crate::actor::Sleeper;
use crate::fixture::{Fixture, LONG, SOON, TTL};
use crate::peer::Peer;

/// Three ttls.
const PAUSE: Duration = Duration::from_secs(90);

fn watchdog(fixture: &Fixture) -> Watchdog {
    Watchdog::at(&format!("unix:{}", fixture.socket.display())).unwrap()
}

/// A node, and a lock of a client that requires it. The test moves the clock of the client.
async fn watched() -> (Fixture, Node, ManualClock, Mutex) {
    let (fixture, node) = Fixture::with_node().await;
    let clock = ManualClock::new();
    let builder = Client::builder().ttl(TTL).clock(Arc::new(clock.clone()));
    let builder = builder.watchdog(watchdog(&fixture).required());
    let client = builder.connect(&fixture.redis.url()).await.unwrap();
    let mutex = client.mutex("job").unwrap();
    (fixture, node, clock, mutex)
}

#[tokio::test]
async fn a_paused_holder_asks_the_store_and_reads_lost_at_once_if_its_lock_was_deleted() {
    let (fixture, _node, clock, mutex) = watched().await;
    let guard = mutex.lock().await.unwrap();
    clock.advance(PAUSE);
    // Nothing else has run yet.
    assert_eq!(guard.state().kind(), StateKind::Jeopardy(Cause::Paused));
    guard.ensure(Duration::ZERO).await.unwrap();
    assert!(guard.state().is_held(), "{:?}", guard.state());
    let quiet = ["CONFIG", "SET", "notify-keyspace-events", ""];
    fixture.redis.cli(&quiet);
    clock.advance(PAUSE);
    fixture.redis.cli(&["DEL", "leasehold:{default:job}"]);
    let error = guard.ensure(Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(guard.state(), State::Lost(Cause::Deleted));
}

/// Work under `Mutex::run` takes no step between the pause and the store's answer.
#[tokio::test]
async fn work_waits_for_the_reply_of_the_store() {
    const LATE: Duration = Duration::from_millis(300);
    let (fixture, _node, clock, mutex) = watched().await;
    let steps = AtomicU64::new(0);
    let done = mutex
        .run(async |guard| {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            // The pause is in the middle of a step; the store is slow to answer after it.
            fixture.redis.stop();
            clock.advance(PAUSE);
            let resumed = std::time::Instant::now();
            let server = fixture.redis.pid();
            let waker = std::thread::spawn(move || {
                std::thread::sleep(LATE);
                kill("CONT", server.try_into().unwrap());
            });
            tokio::task::yield_now().await;
            steps.fetch_add(1, Ordering::SeqCst);
            assert!(resumed.elapsed() >= LATE);
            assert!(guard.state().is_held());
            waker.join().unwrap();
            "done"
        })
        .await;
    assert_eq!(done.unwrap(), "done");
    assert_eq!(steps.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_required_watchdog_must_be_there() {
    let fixture = Fixture::new().await;
    let url = fixture.redis.url();
    let builder = || Client::builder().watchdog(watchdog(&fixture).required());
    // Where there is no socket, nothing is waited for.
    let patient = builder().connect_timeout(SOON).connect(&url);
    let error = tokio::time::timeout(SOON / 3, patient).await.unwrap();
    assert_eq!(error.unwrap_err().kind(), ErrorKind::NoWatchdog);

    let node = fixture.node().await;
    // Nor where the node does not serve the store.
    let other = url.replace("127.0.0.1", "localhost");
    let refused = builder().connect_timeout(SOON).connect(&other);
    let error = tokio::time::timeout(SOON / 3, refused).await.unwrap();
    assert_eq!(error.unwrap_err().kind(), ErrorKind::NoWatchdog);
    let builder = builder().ttl(Duration::from_secs(9));
    let client = builder.connect(&url).await.unwrap();
    let mutex = client.mutex("job").unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
    drop(node);
    // It is given back, and the error says what is missing.
    let error = mutex.lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoWatchdog);
    assert!(error.to_string().contains("watchdog"), "{error}");
    eventually_async(SOON, async || mutex.inspect().await.unwrap().is_none()).await;
    // When it is back, all is well again.
    let _node = fixture.node().await;
    client.watched(SOON).await.unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
}

/// An end in good order is not taken for a death: the node knows that nothing is held when the process ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_ends_disconnects_before_its_process_ends() {
    let (fixture, _node) = Fixture::with_node().await;
    let fixture = &fixture;
    // As at the end of `main`: the runtime ends, and with it all tasks.
    let program = async |shuts_down: bool| {
        // Its silence does not end during the test, which would end the registration as well.
        let client = Client::builder().ttl(LONG).watchdog(watchdog(fixture));
        let client = client.connect(&fixture.redis.url()).await.unwrap();
        let guard = client.mutex("job").unwrap().lock().await.unwrap();
        let mut observer = Peer::observer(fixture);
        eventually_async(SOON, async || {
            let clients = observer.status();
            clients.first().is_some_and(|client| client.leases == 1)
        })
        .await;
        guard.release().await.unwrap();
        if shuts_down {
            client.shutdown(SOON).await.unwrap();
            assert_eq!(observer.status(), [], "it has not waited for the node");
        }
    };
    for shuts_down in [true, false] {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut runtime = tokio::runtime::Builder::new_current_thread();
                let runtime = runtime.enable_all().build().unwrap();
                runtime.block_on(program(shuts_down));
            });
        });
        let mut observer = Peer::observer(fixture);
        eventually(SOON, || observer.status().is_empty());
    }
}

/// A node that does not watch all processes of a client does not keep its leases.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_too_many_processes_is_not_watched_and_knows_the_reason() {
    let (fixture, _node) = Fixture::with_node().await;
    let builder = Client::builder().ttl(TTL).watchdog(watchdog(&fixture));
    let client = builder.connect(&fixture.redis.url()).await.unwrap();
    client.watched(SOON).await.unwrap();
    let guard = client.mutex("job").unwrap().lock().await.unwrap();
    let mut children: Vec<_> = (0..64).map(|_| Sleeper::start()).collect();
    for child in &children {
        assert!(client.watch_process(child.pid()).unwrap());
    }
    eventually_async(SOON, async || {
        let watched = client.watched(Duration::ZERO).await;
        let at_node = watched.err().and_then(|error| {
            let at_node = error.source()?.source()?;
            Some(at_node.to_string())
        });
        at_node.is_some_and(|it| it.contains("it watches as many processes as it may"))
    })
    .await;
    assert_eq!(guard.state().kind(), StateKind::Held);
    // It is forgotten: the process that is not watched may be the last living one.
    let mut observer = Peer::observer(&fixture);
    eventually(SOON, || observer.status().is_empty());
    // One that has ended needs no watching.
    children.pop();
    client.watched(SOON).await.unwrap();
    // The node forgets a client that ends, although its process lives.
    eventually(SOON, || {
        let clients = observer.status();
        clients.first().is_some_and(|client| client.leases == 1)
    });
    guard.release().await.unwrap();
    drop(client);
    eventually(SOON, || observer.status().is_empty());
}
