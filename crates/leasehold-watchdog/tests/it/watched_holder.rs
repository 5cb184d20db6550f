//! A holder of the public library that a node watches: the state of its lease after a pause.
//!
//! The pauses are jumps of the holder's clock, which no other process has.

use std::error::Error as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::clock::ManualClock;
use leasehold::watchdog::{Observer, Watchdog};
use leasehold::{Cause, Client, ErrorKind, Mutex, State, StateKind};
use leasehold_testkit::{RedisServer, eventually_async};
use leasehold_watchdog::{Listen, Node, Settings, StoreSettings};
use tempfile::TempDir;

const TTL: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(20);

/// Three ttls.
const PAUSE: Duration = Duration::from_secs(90);

struct WatchedFixture {
    server: RedisServer,
    directory: TempDir,
    clock: ManualClock,
}

impl WatchedFixture {
    fn new() -> Self {
        Self {
            server: RedisServer::start(),
            directory: TempDir::new().unwrap(),
            clock: ManualClock::new(),
        }
    }

    fn address(&self) -> String {
        format!(
            "unix:{}",
            self.directory.path().join("watchdog.sock").display()
        )
    }

    async fn node(&self) -> Node {
        let store = StoreSettings {
            url: self.server.url(),
            ..StoreSettings::default()
        };
        let settings = Settings {
            listen: vec![Listen::parse(&self.address()).unwrap()],
            stores: vec![store],
            ..Settings::default()
        };
        Node::start(settings).await.unwrap()
    }

    fn watchdog(&self) -> Watchdog {
        Watchdog::at(&self.address()).unwrap()
    }

    async fn client(&self, watchdog: Watchdog) -> leasehold::Result<Client> {
        let builder = Client::builder().ttl(TTL).watchdog(watchdog);
        let builder = builder.clock(Arc::new(self.clock.clone()));
        builder.connect(&self.server.url()).await
    }

    /// A lock of a client that requires the watchdog.
    async fn mutex(&self) -> Mutex {
        let client = self.client(self.watchdog().required()).await.unwrap();
        client.mutex("job").unwrap()
    }
}

#[tokio::test]
async fn a_paused_holder_asks_the_store_and_holds_again() {
    let fixture = WatchedFixture::new();
    let _node = fixture.node().await;
    let guard = fixture.mutex().await.lock().await.unwrap();
    fixture.clock.advance(PAUSE);
    // Nothing else has run yet.
    assert_eq!(guard.state().kind(), StateKind::Jeopardy(Cause::Paused));
    guard.ensure(Duration::ZERO).await.unwrap();
    assert!(guard.state().is_held(), "{:?}", guard.state());
    fixture.clock.advance(PAUSE);
    eventually_async(SOON, async || guard.state().is_held()).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_paused_holder_whose_lock_was_deleted_reads_lost_at_once() {
    let fixture = WatchedFixture::new();
    let _node = fixture.node().await;
    let guard = fixture.mutex().await.lock().await.unwrap();
    fixture
        .server
        .cli(&["CONFIG", "SET", "notify-keyspace-events", ""]);
    fixture.clock.advance(PAUSE);
    fixture.server.cli(&["DEL", "leasehold:{default:job}"]);
    let error = guard.ensure(Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(guard.state(), State::Lost(Cause::Deleted));
}

#[tokio::test]
async fn a_paused_holder_that_cannot_reach_the_store_is_lost() {
    let fixture = WatchedFixture::new();
    let _node = fixture.node().await;
    let guard = fixture.mutex().await.lock().await.unwrap();
    fixture.server.stop();
    fixture.clock.advance(PAUSE);
    assert_eq!(guard.state().kind(), StateKind::Jeopardy(Cause::Paused));
    // Its time goes on while it asks again and again.
    eventually_async(SOON, async || {
        fixture.clock.advance(Duration::from_millis(100));
        guard.state().is_lost()
    })
    .await;
    assert_eq!(guard.lost().await, Cause::Unreachable);
    fixture.server.cont();
}

#[tokio::test]
async fn without_a_watchdog_a_paused_holder_reads_lost_at_once() {
    let fixture = WatchedFixture::new();
    let builder = Client::builder()
        .ttl(TTL)
        .clock(Arc::new(fixture.clock.clone()));
    let client = builder.connect(&fixture.server.url()).await.unwrap();
    let guard = client.mutex("job").unwrap().lock().await.unwrap();
    fixture.clock.advance(PAUSE);
    assert_eq!(guard.state(), State::Lost(Cause::Paused));
}

/// Work under `Mutex::run` takes no step between the pause and the store's answer.
#[tokio::test]
async fn work_waits_for_the_reply_of_the_store() {
    let fixture = WatchedFixture::new();
    let _node = fixture.node().await;
    let mutex = fixture.mutex().await;
    let steps = Arc::new(AtomicU64::new(0));
    let (clock, taken) = (fixture.clock.clone(), Arc::clone(&steps));
    let server = &fixture.server;
    let done = mutex
        .run(async |guard| {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            // The pause is in the middle of a step; the store is slow to answer after it.
            server.stop();
            clock.advance(PAUSE);
            let resumed = std::time::Instant::now();
            let server = server.pid();
            let waker = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(300));
                let pid = server.to_string();
                std::process::Command::new("kill")
                    .args(["-CONT", &pid])
                    .status()
            });
            tokio::task::yield_now().await;
            taken.fetch_add(1, Ordering::SeqCst);
            assert!(resumed.elapsed() >= Duration::from_millis(300));
            assert!(guard.state().is_held());
            waker.join().unwrap().unwrap();
            "done"
        })
        .await;
    assert_eq!(done.unwrap(), "done");
    assert_eq!(steps.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_required_watchdog_must_be_there() {
    let fixture = WatchedFixture::new();
    let required = fixture.watchdog().required();
    let builder = Client::builder().watchdog(required.clone());
    let builder = builder.connect_timeout(Duration::from_millis(200));
    let error = builder.connect(&fixture.server.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);

    let node = fixture.node().await;
    let builder = Client::builder().ttl(Duration::from_millis(600));
    let client = builder
        .watchdog(required)
        .connect(&fixture.server.url())
        .await
        .unwrap();
    let mutex = client.mutex("job").unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
    drop(node);
    // It is given back, and the error says what is missing.
    let error = mutex.lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.to_string().contains("watchdog"), "{error}");
    eventually_async(SOON, async || !mutex.is_locked().await.unwrap()).await;
    // When it is back, all is well again.
    let _node = fixture.node().await;
    client.watched(SOON).await.unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_node_forgets_a_client_that_ends() {
    let fixture = WatchedFixture::new();
    let node = fixture.node().await;
    let client = fixture.client(fixture.watchdog().required()).await.unwrap();
    let guard = client.mutex("job").unwrap().lock().await.unwrap();
    let socket = fixture.watchdog().socket().unwrap().to_owned();
    let clients = move || Observer::connect(&socket).unwrap().status().unwrap();
    let read = clients.clone();
    let seen = tokio::task::spawn_blocking(read).await.unwrap();
    assert_eq!((seen.len(), seen[0].leases), (1, 1));
    guard.release().await.unwrap();
    drop(client);
    eventually_async(SOON, async || {
        tokio::task::spawn_blocking(clients.clone())
            .await
            .unwrap()
            .is_empty()
    })
    .await;
    drop(node);
}

/// A node that does not watch all processes of a client does not keep its leases.
#[tokio::test]
async fn a_client_with_too_many_processes_is_not_watched_and_knows_the_reason() {
    let fixture = WatchedFixture::new();
    let _node = fixture.node().await;
    let builder = Client::builder().ttl(TTL).watchdog(fixture.watchdog());
    let client = builder.connect(&fixture.server.url()).await.unwrap();
    client.watched(SOON).await.unwrap();
    let guard = client.mutex("job").unwrap().lock().await.unwrap();
    let mut children: Vec<_> = (0..64)
        .map(|_| Command::new("sleep").arg("1000").spawn().unwrap())
        .collect();
    for child in &children {
        assert!(client.watch_process(child.id()).unwrap());
    }
    let reason = |error: leasehold::Error| {
        let at_node = error.source()?.source()?;
        Some(at_node.to_string())
    };
    eventually_async(SOON, async || {
        let watched = client.watched(Duration::ZERO).await;
        let found = watched.err().and_then(reason);
        found.is_some_and(|found| found.contains("it watches as many processes as it may"))
    })
    .await;
    assert_eq!(guard.state().kind(), StateKind::Held);
    // One that has ended needs no watching.
    children[0].kill().unwrap();
    children[0].wait().unwrap();
    client.watched(SOON).await.unwrap();
    for child in &mut children {
        let _ = child.kill();
        let _ = child.wait();
    }
}
