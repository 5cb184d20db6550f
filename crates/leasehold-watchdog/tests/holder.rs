//! A holder of the public library, looked after by a node: what it believes after a pause.
//!
//! The pauses are jumps of the holder's own clock: to it, and to nobody else, a long time has passed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

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

struct World {
    server: RedisServer,
    folder: TempDir,
    clock: ManualClock,
}

impl World {
    fn new() -> Self {
        Self {
            server: RedisServer::start(),
            folder: TempDir::new().unwrap(),
            clock: ManualClock::new(),
        }
    }

    fn address(&self) -> String {
        format!(
            "unix:{}",
            self.folder.path().join("watchdog.sock").display()
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

    /// A lock of a client whose leases are looked after before anybody has them.
    async fn mutex(&self) -> Mutex {
        let client = self.client(self.watchdog().required()).await.unwrap();
        client.mutex("job").unwrap()
    }
}

#[tokio::test]
async fn a_holder_that_was_paused_asks_and_goes_on() {
    let world = World::new();
    let _node = world.node().await;
    let guard = world.mutex().await.lock().await.unwrap();
    world.clock.advance(PAUSE);
    // Nothing else has run yet.
    assert_eq!(guard.state().kind(), StateKind::Jeopardy(Cause::Paused));
    guard.ensure(Duration::ZERO).await.unwrap();
    assert!(guard.state().is_held(), "{:?}", guard.state());
    world.clock.advance(PAUSE);
    eventually_async(SOON, async || guard.state().is_held()).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn one_whose_lock_is_gone_learns_it_before_anything_else() {
    let world = World::new();
    let _node = world.node().await;
    let guard = world.mutex().await.lock().await.unwrap();
    world
        .server
        .cli(&["CONFIG", "SET", "notify-keyspace-events", ""]);
    world.clock.advance(PAUSE);
    world.server.cli(&["DEL", "leasehold:{default:job}"]);
    let error = guard.ensure(Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(guard.state(), State::Lost(Cause::Deleted));
}

#[tokio::test]
async fn one_that_reaches_nobody_after_it_is_lost() {
    let world = World::new();
    let _node = world.node().await;
    let guard = world.mutex().await.lock().await.unwrap();
    world.server.stop();
    world.clock.advance(PAUSE);
    assert_eq!(guard.state().kind(), StateKind::Jeopardy(Cause::Paused));
    // Its time goes on while it asks again and again.
    eventually_async(SOON, async || {
        world.clock.advance(Duration::from_millis(100));
        guard.state().is_lost()
    })
    .await;
    assert_eq!(guard.lost().await, Cause::Unreachable);
    world.server.cont();
}

#[tokio::test]
async fn without_a_watchdog_it_is_lost_as_soon_as_it_looks() {
    let world = World::new();
    let builder = Client::builder()
        .ttl(TTL)
        .clock(Arc::new(world.clock.clone()));
    let client = builder.connect(&world.server.url()).await.unwrap();
    let guard = client.mutex("job").unwrap().lock().await.unwrap();
    world.clock.advance(PAUSE);
    assert_eq!(guard.state(), State::Lost(Cause::Paused));
}

/// Work under `Mutex::run` takes no step between the pause and the store's answer.
#[tokio::test]
async fn work_waits_for_the_answer() {
    let world = World::new();
    let _node = world.node().await;
    let mutex = world.mutex().await;
    let steps = Arc::new(AtomicU64::new(0));
    let (clock, taken) = (world.clock.clone(), Arc::clone(&steps));
    let server = &world.server;
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
async fn what_is_required_must_be_there() {
    let world = World::new();
    let required = world.watchdog().required();
    let builder = Client::builder().watchdog(required.clone());
    let builder = builder.connect_timeout(Duration::from_millis(200));
    let error = builder.connect(&world.server.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);

    let node = world.node().await;
    let builder = Client::builder().ttl(Duration::from_millis(600));
    let client = builder
        .watchdog(required)
        .connect(&world.server.url())
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
    let _node = world.node().await;
    client.watched(SOON).await.unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_client_that_ends_is_forgotten() {
    let world = World::new();
    let node = world.node().await;
    let client = world.client(world.watchdog().required()).await.unwrap();
    let guard = client.mutex("job").unwrap().lock().await.unwrap();
    let socket = world.watchdog().socket().unwrap().to_owned();
    let clients = move || Observer::connect(&socket).unwrap().status().unwrap();
    let look = clients.clone();
    let seen = tokio::task::spawn_blocking(look).await.unwrap();
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

/// A node that does not watch all processes of a client does not look after its leases.
#[tokio::test]
async fn a_client_with_too_many_processes_is_not_watched_and_knows_why() {
    let world = World::new();
    let _node = world.node().await;
    let builder = Client::builder().ttl(TTL).watchdog(world.watchdog());
    let client = builder.connect(&world.server.url()).await.unwrap();
    client.watched(SOON).await.unwrap();
    let guard = client.mutex("job").unwrap().lock().await.unwrap();
    let mut children: Vec<_> = (0..64)
        .map(|_| Command::new("sleep").arg("1000").spawn().unwrap())
        .collect();
    for child in &children {
        assert!(client.watch_process(child.id()).unwrap());
    }
    let why = |error: leasehold::Error| {
        let at_node = error.source()?.source()?;
        Some(at_node.to_string())
    };
    eventually_async(SOON, async || {
        let watched = client.watched(Duration::ZERO).await;
        let why = watched.err().and_then(why);
        why.is_some_and(|why| why.contains("it watches as many processes as it may"))
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
