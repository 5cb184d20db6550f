//! The stores that every test of behaviour runs on.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use leasehold::store::{self, MemoryStore, OpenOptions, Store};
use leasehold::{Client, ClientBuilder};
use leasehold_testkit::{Cluster, Masters, RedisServer, SentinelSet};
use tempfile::TempDir;

use crate::doctor;
use crate::recording_store::RecordingStore;

/// A store of its own for one test, which several clients share.
pub(crate) enum Fixture {
    Memory(Arc<MemoryStore>),
    Sqlite(TempDir),
    Redis(Arc<RedisServer>),
    Sentinel(Arc<SentinelSet>),
    Cluster(Arc<Cluster>),
    Masters(Arc<Masters>),
    /// A server, for a user with the rights that `doctor` names and no others.
    Allowed(Arc<RedisServer>),
    /// One that another process set up.
    Other(String),
}

impl Fixture {
    pub(crate) fn memory() -> Self {
        Self::Memory(Arc::new(MemoryStore::new()))
    }

    pub(crate) fn sqlite() -> Self {
        // In memory where that is possible: these tests are not about a disk, which may be stuck for seconds.
        let memory = TempDir::new_in("/dev/shm");
        Self::Sqlite(memory.or_else(|_| TempDir::new()).unwrap())
    }

    /// A server that the tests of this process share while any of them runs.
    pub(crate) fn redis() -> Self {
        static SERVER: Mutex<Weak<RedisServer>> = Mutex::new(Weak::new());
        let mut server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        let running = server.upgrade().unwrap_or_else(|| {
            let started = Arc::new(RedisServer::start());
            *server = Arc::downgrade(&started);
            started
        });
        Self::Redis(running)
    }

    /// As [`Fixture::redis`], for a user with no more rights than need be.
    pub(crate) fn allowed() -> Self {
        static SERVER: Mutex<Weak<RedisServer>> = Mutex::new(Weak::new());
        let mut server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        let running = server.upgrade().unwrap_or_else(|| {
            let started = Arc::new(RedisServer::options().tls().start());
            doctor::allow(&started, "");
            // Spaces that the tests use beside the usual one.
            let more = [
                "~other:*", "&other:*", "~names:*", "&names:*", "~list-*", "&list-*",
            ];
            started.cli(&[&["ACL", "SETUSER", "leasehold"][..], &more].concat());
            *server = Arc::downgrade(&started);
            started
        });
        Self::Allowed(running)
    }

    /// A set that the tests of this process share while any of them runs. None of them lets it fail
    /// over, nor does a busy machine.
    pub(crate) fn sentinel() -> Self {
        static SET: Mutex<Weak<SentinelSet>> = Mutex::new(Weak::new());
        let mut set = SET.lock().unwrap_or_else(PoisonError::into_inner);
        let running = set.upgrade().unwrap_or_else(|| {
            let patient = SentinelSet::options().down_after(Duration::from_secs(60));
            let started = Arc::new(patient.start());
            *set = Arc::downgrade(&started);
            started
        });
        Self::Sentinel(running)
    }

    /// A cluster that the tests of this process share while any of them runs.
    pub(crate) fn cluster() -> Self {
        static CLUSTER: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
        let mut cluster = CLUSTER.lock().unwrap_or_else(PoisonError::into_inner);
        let running = cluster.upgrade().unwrap_or_else(|| {
            let started = Arc::new(Cluster::start());
            *cluster = Arc::downgrade(&started);
            started
        });
        Self::Cluster(running)
    }

    /// Three masters that the tests of this process share while any of them runs.
    pub(crate) fn redlock3() -> Self {
        static MASTERS: Mutex<Weak<Masters>> = Mutex::new(Weak::new());
        Self::Masters(shared(&MASTERS, || Masters::aged(3)))
    }

    /// Five of them.
    pub(crate) fn redlock5() -> Self {
        static MASTERS: Mutex<Weak<Masters>> = Mutex::new(Weak::new());
        Self::Masters(shared(&MASTERS, || Masters::aged(5)))
    }

    pub(crate) fn url(&self) -> Option<String> {
        match self {
            Self::Memory(_) => None,
            Self::Sqlite(folder) => Some(format!("sqlite:{}/locks.db", folder.path().display())),
            Self::Redis(server) => Some(server.url()),
            Self::Sentinel(set) => Some(set.url()),
            Self::Cluster(cluster) => Some(cluster.url()),
            Self::Masters(masters) => Some(format!("{}?longest-ttl=24h", masters.url())),
            Self::Allowed(server) => Some(server.url_of("leasehold", doctor::PASSWORD)),
            Self::Other(url) => Some(url.clone()),
        }
    }

    /// The server that keeps the locks.
    pub(crate) fn server(&self) -> &RedisServer {
        match self {
            Self::Redis(server) | Self::Allowed(server) => server,
            Self::Sentinel(set) => &set.servers()[set.master()],
            Self::Memory(_)
            | Self::Sqlite(_)
            | Self::Cluster(_)
            | Self::Masters(_)
            | Self::Other(_) => {
                unreachable!("there is none, or more than one")
            }
        }
    }

    /// Another client, as another process would have.
    pub(crate) async fn client(&self) -> Client {
        self.client_with(Client::builder()).await
    }

    pub(crate) async fn client_with(&self, builder: ClientBuilder) -> Client {
        match (self, self.url()) {
            (Self::Memory(store), _) => builder.build(Arc::clone(store) as Arc<dyn Store>),
            (_, Some(url)) => builder.connect(&url).await,
            (_, None) => unreachable!("only memory has no URL that can be shared"),
        }
        .unwrap()
    }

    /// Another client whose every operation can be seen.
    pub(crate) async fn tapped(&self, builder: ClientBuilder) -> (Client, Arc<RecordingStore>) {
        let recorder = RecordingStore::on(self.store().await);
        let store = Arc::clone(&recorder) as Arc<dyn Store>;
        (builder.build(store).unwrap(), recorder)
    }

    /// The store itself, below every client.
    pub(crate) async fn store(&self) -> Arc<dyn Store> {
        match (self, self.url()) {
            (Self::Memory(store), _) => Arc::clone(store) as Arc<dyn Store>,
            (_, Some(url)) => store::open(&url, &OpenOptions::default()).await.unwrap(),
            (_, None) => unreachable!("only memory has no URL that can be shared"),
        }
    }
}

/// A name that no other test uses: tests of one server run side by side.
pub(crate) fn fresh_name(what: &str) -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{what}/{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// What runs already, or a new one.
fn shared<T>(running: &Mutex<Weak<T>>, start: impl FnOnce() -> T) -> Arc<T> {
    let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
    running.upgrade().unwrap_or_else(|| {
        let started = Arc::new(start());
        *running = Arc::downgrade(&started);
        started
    })
}
