//! The stores that every test of behaviour runs on.

use std::env;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use leasehold::__private::store::{Feature, Key, MemoryStore, Store};
use leasehold::{Cause, Client, ClientBuilder, LeaseOptions};
use leasehold_core::Name;
use leasehold_testkit::{
    BucketServer, Cluster, EtcdCluster, Masters, PostgresServer, RedisServer, SentinelSet,
    ZookeeperServer, temp_dir,
};
use tempfile::TempDir;

use crate::doctor;
use crate::recording_store::RecordingStore;
use crate::store_client::{PATIENCE, keyspace, open_patient};

/// How long a store may take to be closed after its last client was dropped.
const CLOSED_MAX: Duration = Duration::from_secs(2);

/// The number of buckets in a fixture with buckets: some tests use more names.
const BUCKETS: usize = 8;

/// The variable with the number of members of etcd and of ZooKeeper, if not one. `cargo xtask matrix` sets it.
const MEMBERS: &str = "TESTKIT_MEMBERS";

/// The cluster that tests share while any of them runs.
static CLUSTER: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());

/// A store for one test, which several clients share.
pub(crate) enum Fixture {
    /// A store in this process.
    Local(Arc<dyn Store>),
    Sqlite(TempDir),
    Postgres(Arc<PostgresServer>),
    Etcd(Arc<EtcdCluster>),
    Zookeeper(Arc<ZookeeperServer>),
    Redis(Arc<RedisServer>),
    Sentinel(Arc<SentinelSet>),
    Cluster(Arc<Cluster>),
    /// A cluster, and namespaces with buckets.
    Buckets(Arc<Cluster>),
    Masters(Arc<Masters>),
    /// Objects below a prefix of their own.
    Objects(Arc<BucketServer>, String),
    /// A server, for a user with the rights that `doctor` names and no others.
    Allowed(Arc<RedisServer>),
    /// A store that another process has created.
    Other(String),
}

impl Fixture {
    /// A store in this process, such as a `RuleStore` over a backend.
    fn local(store: impl Store) -> Self {
        Self::Local(Arc::new(store))
    }

    pub(crate) fn memory() -> Self {
        Self::local(MemoryStore::new())
    }

    pub(crate) fn sqlite() -> Self {
        Self::Sqlite(temp_dir())
    }

    // Servers that the tests of this process share while any of them runs.

    pub(crate) fn postgres() -> Self {
        static SERVER: Mutex<Weak<PostgresServer>> = Mutex::new(Weak::new());
        Self::Postgres(shared(&SERVER, PostgresServer::start))
    }

    pub(crate) fn zookeeper() -> Self {
        static SERVER: Mutex<Weak<ZookeeperServer>> = Mutex::new(Weak::new());
        let start = || ZookeeperServer::with(members(), "");
        Self::Zookeeper(shared(&SERVER, start))
    }

    pub(crate) fn etcd() -> Self {
        static CLUSTER: Mutex<Weak<EtcdCluster>> = Mutex::new(Weak::new());
        let start = || EtcdCluster::options().start(members());
        Self::Etcd(shared(&CLUSTER, start))
    }

    pub(crate) fn redis() -> Self {
        static SERVER: Mutex<Weak<RedisServer>> = Mutex::new(Weak::new());
        Self::Redis(shared(&SERVER, RedisServer::start))
    }

    /// A server over TLS, with a user that has the rights named by `doctor` and no others.
    pub(crate) fn allowed() -> Self {
        static SERVER: Mutex<Weak<RedisServer>> = Mutex::new(Weak::new());
        Self::Allowed(shared(&SERVER, || {
            let server = RedisServer::options().tls().start();
            // The other namespaces of the tests.
            doctor::allow(&server, &["app", "other", "list-*"], "");
            server
        }))
    }

    pub(crate) fn sentinel() -> Self {
        static SET: Mutex<Weak<SentinelSet>> = Mutex::new(Weak::new());
        Self::Sentinel(shared(&SET, SentinelSet::start))
    }

    pub(crate) fn cluster() -> Self {
        Self::Cluster(shared(&CLUSTER, Cluster::start))
    }

    pub(crate) fn buckets() -> Self {
        Self::Buckets(shared(&CLUSTER, Cluster::start))
    }

    pub(crate) fn redlock3() -> Self {
        static MASTERS: Mutex<Weak<Masters>> = Mutex::new(Weak::new());
        Self::Masters(shared(&MASTERS, || Masters::aged(3)))
    }

    pub(crate) fn redlock5() -> Self {
        static MASTERS: Mutex<Weak<Masters>> = Mutex::new(Weak::new());
        Self::Masters(shared(&MASTERS, || Masters::aged(5)))
    }

    pub(crate) fn objects() -> Self {
        static SERVER: Mutex<Weak<BucketServer>> = Mutex::new(Weak::new());
        let server = shared(&SERVER, BucketServer::start);
        Self::Objects(server, BucketServer::fresh_path())
    }

    /// Why a lease is lost that an operator has revoked: a holder that is not notified only learns that it does not hold.
    pub(crate) fn revocation(&self) -> Cause {
        match self {
            Self::Objects(..) => Cause::Deleted,
            _ => Cause::Revoked,
        }
    }

    pub(crate) fn url(&self) -> Option<String> {
        match self {
            Self::Local(_) => None,
            Self::Sqlite(directory) => {
                Some(format!("sqlite:{}/locks.db", directory.path().display()))
            }
            Self::Postgres(server) => Some(server.url()),
            Self::Etcd(cluster) => Some(cluster.url()),
            Self::Zookeeper(server) => Some(server.url()),
            Self::Redis(server) => Some(server.url()),
            Self::Sentinel(set) => Some(set.url()),
            Self::Cluster(cluster) | Self::Buckets(cluster) => Some(cluster.url()),
            Self::Masters(masters) => Some(format!("{}?longest-ttl=24h", masters.url())),
            Self::Allowed(server) => Some(server.url_of("leasehold", doctor::PASSWORD)),
            Self::Objects(server, path) => Some(BucketServer::url_at(server.port(), path)),
            Self::Other(url) => Some(url.clone()),
        }
    }

    /// The Redis servers that keep the locks.
    pub(crate) fn servers(&self) -> &[RedisServer] {
        match self {
            Self::Redis(server) | Self::Allowed(server) => std::slice::from_ref(server),
            Self::Sentinel(set) => std::slice::from_ref(&set.servers()[set.master()]),
            Self::Cluster(cluster) | Self::Buckets(cluster) => cluster.nodes(),
            Self::Masters(masters) => masters.servers(),
            Self::Local(_)
            | Self::Sqlite(_)
            | Self::Postgres(_)
            | Self::Etcd(_)
            | Self::Zookeeper(_)
            | Self::Objects(..)
            | Self::Other(_) => &[],
        }
    }

    /// A namespace, with the buckets of this fixture.
    pub(crate) fn namespace(&self, scope: &str) -> String {
        match self {
            Self::Buckets(_) => format!("{scope}@{BUCKETS}"),
            _ => scope.to_owned(),
        }
    }

    /// The key of a lock of a client with default settings.
    pub(crate) fn key(&self, name: &str) -> Key {
        keyspace(&self.namespace("leasehold"), "default").key(Name::parse(name).unwrap())
    }

    /// Another client, as another process would have.
    pub(crate) async fn client(&self) -> Client {
        self.client_with(Client::builder()).await
    }

    pub(crate) async fn client_with(&self, builder: ClientBuilder) -> Client {
        self.client_in("leasehold", builder).await
    }

    /// Another client with this ttl, which waits for replies as long as that allows.
    pub(crate) async fn client_with_ttl(&self, ttl: Duration) -> Client {
        let builder = Client::builder().ttl(ttl).response_timeout(ttl / 3);
        self.connected("leasehold", builder).await
    }

    /// Another client, in a namespace.
    pub(crate) async fn client_in(&self, namespace: &str, builder: ClientBuilder) -> Client {
        let builder = builder.response_timeout(PATIENCE);
        self.connected(namespace, builder).await
    }

    async fn connected(&self, namespace: &str, builder: ClientBuilder) -> Client {
        let builder = builder.namespace(self.namespace(namespace));
        match (self, self.url()) {
            (Self::Local(store), _) => builder.build(Arc::clone(store)),
            (_, Some(url)) => builder.connect(&url).await,
            (_, None) => unreachable!("only a local store has no URL that can be shared"),
        }
        .unwrap()
    }

    /// So many other clients.
    pub(crate) async fn clients<const COUNT: usize>(&self) -> [Client; COUNT] {
        let mut clients = Vec::new();
        for _ in 0..COUNT {
            clients.push(self.client().await);
        }
        clients.try_into().unwrap()
    }

    /// A lock with a fresh name, for another client.
    pub(crate) async fn mutex(&self, name: &str) -> leasehold::Mutex {
        self.client().await.mutex(fresh_name(name)).unwrap()
    }

    /// Another client, whose operations are recorded.
    pub(crate) async fn recorded(&self, builder: ClientBuilder) -> (Client, Arc<RecordingStore>) {
        let recorder = RecordingStore::on(self.store().await);
        let store = Arc::clone(&recorder) as Arc<dyn Store>;
        let builder = builder.namespace(self.namespace("leasehold"));
        (builder.build(store).unwrap(), recorder)
    }

    pub(crate) async fn has(&self, feature: Feature) -> bool {
        self.store().await.capabilities().kind.has(feature)
    }

    /// The store itself, below every client.
    pub(crate) async fn store(&self) -> Arc<dyn Store> {
        match (self, self.url()) {
            (Self::Local(store), _) => Arc::clone(store),
            (_, Some(url)) => open_patient(&url).await,
            (_, None) => unreachable!("only a local store has no URL that can be shared"),
        }
    }
}

impl Drop for Fixture {
    /// A store that is still open would create its file again, so the last one has to be closed.
    fn drop(&mut self) {
        if let Self::Sqlite(directory) = self {
            let log = directory.path().join("locks.db-wal");
            let begun = Instant::now();
            while log.exists() && begun.elapsed() < CLOSED_MAX {
                std::thread::sleep(CLOSED_MAX / 1_000);
            }
        }
    }
}

/// Two clients of a server, as two processes would have, however long a busy server takes to reply.
pub(crate) async fn two_clients(url: &str) -> [Client; 2] {
    Fixture::Other(url.to_owned()).clients().await
}

/// A name that no other test uses: tests of one server run side by side.
pub(crate) fn fresh_name(what: &str) -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{what}/{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The same lock with other options.
pub(crate) fn with_options(mutex: &leasehold::Mutex, options: LeaseOptions) -> leasehold::Mutex {
    mutex.with(options).unwrap()
}

fn members() -> usize {
    env::var(MEMBERS).map_or(1, |members| members.parse().unwrap())
}

/// What is shared already, or a new one.
fn shared<T>(running: &Mutex<Weak<T>>, start: impl FnOnce() -> T) -> Arc<T> {
    let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
    running.upgrade().unwrap_or_else(|| {
        let started = Arc::new(start());
        *running = Arc::downgrade(&started);
        started
    })
}
