//! What a test stands on: a Redis server, a node that serves it, and a look into the store.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::store::{Key, Keyspace, OpenOptions, Reply, Request, Store, open};
use leasehold_core::{LeaseId, Name, Op, Outcome, ScopeName, TokenCount, Ttl};
use leasehold_testkit::{RedisServer, eventually_async};
use leasehold_watchdog::{Listen, Node, Settings, StoreSettings};
use tempfile::TempDir;

use crate::actor::Actor;
use crate::raw::client_id;

/// Within which time anything happens, also on a slow machine under load.
pub(crate) const SOON: Duration = Duration::from_secs(30);

pub(crate) struct Fixture {
    pub(crate) redis: RedisServer,
    pub(crate) url: String,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) socket: PathBuf,
    pub(crate) folder: TempDir,
}

impl Fixture {
    /// A server, and a place for a node.
    pub(crate) async fn make() -> Self {
        let redis = RedisServer::start();
        let folder = tempfile::tempdir().unwrap();
        let store = open(&redis.url(), &OpenOptions::default()).await.unwrap();
        Self {
            url: store.to_string(),
            store,
            socket: folder.path().join("run/watchdog.sock"),
            redis,
            folder,
        }
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings {
            listen: vec![Listen::Unix(self.socket.clone())],
            stores: vec![StoreSettings {
                name: Some("main".into()),
                url: self.redis.url(),
                ..StoreSettings::default()
            }],
            ..Settings::default()
        }
    }

    pub(crate) async fn node(&self) -> Node {
        Node::start(self.settings()).await.unwrap()
    }

    /// Gives a lease to a client that has said hello, and has it registered.
    pub(crate) async fn holder(&self, name: &str, ttl: Duration) -> Actor {
        let actor = Actor::introduced(self);
        self.acquire(actor.client, 1, name, ttl).await;
        actor.registers(1, name, ttl);
        actor
    }

    /// Gives a lease to a client.
    pub(crate) async fn acquire(&self, client: u128, number: u64, name: &str, ttl: Duration) {
        let outcome = self.try_acquire(client, number, name, ttl).await;
        assert!(matches!(outcome, Outcome::Granted { .. }), "{outcome:?}");
    }

    pub(crate) async fn try_acquire(
        &self,
        client: u128,
        number: u64,
        name: &str,
        ttl: Duration,
    ) -> Outcome {
        let op = Op::Acquire {
            lease: lease(client, number),
            count: NonZeroU32::MIN,
            ttl: Ttl::checked(ttl).unwrap(),
            tokens: TokenCount::MIN,
            wait: false,
        };
        let request = Request::new(key(name), op);
        match self.store.apply(vec![request]).await.remove(0) {
            Reply::Applied { outcome, .. } => outcome,
            other => panic!("{other:?}"),
        }
    }

    /// Whether a client holds a lock, and for how long.
    pub(crate) async fn held(&self, client: u128, number: u64, name: &str) -> Option<Duration> {
        let entry = self.store.inspect(&key(name)).await.unwrap()?;
        (entry.lease == lease(client, number)).then_some(entry.time_left)
    }

    /// Whether a client holds a lock, asked over a connection that may have to be opened again.
    pub(crate) async fn is_held(&self, client: u128, number: u64, name: &str) -> bool {
        let deadline = Instant::now() + SOON;
        loop {
            match self.store.inspect(&key(name)).await {
                Ok(entry) => return entry.is_some_and(|it| it.lease == lease(client, number)),
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
        }
    }

    /// Waits until nobody holds a lock.
    pub(crate) async fn is_free(&self, name: &str) {
        let key = key(name);
        eventually_async(SOON, async || {
            self.store.inspect(&key).await.unwrap().is_none()
        })
        .await;
    }
}

pub(crate) fn key(name: &str) -> Key {
    let scope = |text| ScopeName::parse(text).unwrap();
    let space = Keyspace::new(scope("test"), scope("default"));
    space.key(Name::parse(name).unwrap())
}

pub(crate) fn lease(client: u128, number: u64) -> LeaseId {
    LeaseId {
        client: client_id(client),
        number,
    }
}
