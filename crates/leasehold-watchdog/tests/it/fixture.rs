//! A Redis server, a directory for the socket of a node, and requests to the store.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::__private::store::{
    Key, Keyspace, OpenOptions, Parts, Reply, Request, Store, open_with,
};
use leasehold_core::{Acquire, LeaseId, Name, Namespace, Op, Outcome, ScopeName, Ttl};
use leasehold_testkit::{RedisServer, eventually, eventually_async, temp_dir};
use leasehold_watchdog::{Listen, Node, Settings, StoreSettings};
use tempfile::TempDir;

use crate::actor::Actor;
use crate::peer::client_id;

/// The time limit of anything that a test waits for, also on a slow machine under load.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A ttl that does not end before a renewal, also after a stall of seconds.
pub(crate) const TTL: Duration = Duration::from_secs(30);

/// A ttl that does not end during a test.
pub(crate) const LONG: Duration = Duration::from_secs(600);

pub(crate) struct Fixture {
    pub(crate) redis: RedisServer,
    pub(crate) url: String,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) socket: PathBuf,
    pub(crate) directory: TempDir,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let redis = RedisServer::start();
        let directory = temp_dir();
        // A busy machine may starve the server.
        let options = OpenOptions::default().response_timeout(Duration::from_secs(10));
        let store = open_with(&redis.url(), &options).await.unwrap();
        Self {
            url: store.to_string(),
            store,
            socket: directory.path().join("run/watchdog.sock"),
            redis,
            directory,
        }
    }

    /// A fixture and a node in this process.
    pub(crate) async fn with_node() -> (Self, Node) {
        Self::with_settings(|_| {}).await
    }

    /// A fixture and a node with other settings.
    pub(crate) async fn with_settings(change: impl FnOnce(&mut Settings)) -> (Self, Node) {
        let fixture = Self::new().await;
        let mut settings = fixture.settings();
        change(&mut settings);
        let node = Node::start(settings).await.unwrap();
        (fixture, node)
    }

    pub(crate) fn settings(&self) -> Settings {
        let mut store = StoreSettings::new(self.redis.url());
        store.name = Some("main".into());
        Settings::new(vec![Listen::Unix(self.socket.clone())], vec![store])
    }

    pub(crate) async fn node(&self) -> Node {
        Node::start(self.settings()).await.unwrap()
    }

    /// A client with a registered lease.
    pub(crate) async fn holder(&self, name: &str, ttl: Duration) -> Actor {
        let mut actor = Actor::client(self);
        self.acquire(actor.client, 1, name, ttl).await;
        actor.register(1, name, ttl);
        actor
    }

    /// Gives a lease to a client.
    pub(crate) async fn acquire(&self, client: u128, number: u64, name: &str, ttl: Duration) {
        let acquire = Acquire::mutex(lease(client, number), Ttl::checked(ttl).unwrap());
        let op = Op::Acquire(acquire);
        let replies = self.store.apply(vec![Request::new(key(name), op)]).await;
        let [Reply::Applied { outcome, .. }] = &replies[..] else {
            panic!("{replies:?}");
        };
        assert!(matches!(outcome, Outcome::Granted { .. }), "{outcome:?}");
    }

    /// Whether a client holds a lock, over a connection that may have to be opened again.
    pub(crate) async fn is_held(&self, client: u128, number: u64, name: &str) -> bool {
        let deadline = Instant::now() + SOON;
        loop {
            match self.store.view(&key(name), Parts::Lease).await {
                Ok(view) => {
                    let held = view.lease();
                    return held.is_some_and(|(held, _)| held == lease(client, number));
                }
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
        }
    }

    /// The end of the lease of a held lock, in milliseconds on the server's clock.
    pub(crate) fn lease_end(&self, name: &str) -> i64 {
        let key = format!("test:{{default:{name}}}");
        self.redis.cli(&["PEXPIRETIME", &key]).parse().unwrap()
    }

    /// Waits until the lease of a held lock is renewed.
    pub(crate) fn wait_for_renewal(&self, name: &str) {
        let end = self.lease_end(name);
        eventually(SOON, || self.lease_end(name) > end);
    }

    /// Checks that a client holds a lock by its first lease all the time.
    pub(crate) async fn assert_held_for(&self, client: u128, name: &str, duration: Duration) {
        let start = Instant::now();
        while start.elapsed() < duration {
            let held = self.is_held(client, 1, name).await;
            assert!(held, "lost after {:?}", start.elapsed());
            tokio::time::sleep(duration / 100).await;
        }
    }

    /// Waits until no client holds a lock.
    pub(crate) async fn wait_until_free(&self, name: &str) {
        let key = key(name);
        eventually_async(SOON, async || {
            let view = self.store.view(&key, Parts::Lease).await;
            view.is_ok_and(|view| view.holder.is_none())
        })
        .await;
    }
}

fn key(name: &str) -> Key {
    let namespace = Namespace::parse("test").unwrap();
    let keyspace = Keyspace::new(namespace, ScopeName::parse("default").unwrap());
    keyspace.key(Name::parse(name).unwrap())
}

fn lease(client: u128, number: u64) -> LeaseId {
    LeaseId {
        client: client_id(client),
        number,
    }
}
