//! The store that a run measures, and connections to it.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::Duration;

use leasehold::__private::store::{self, Key, Keyspace, OpenOptions, Store};
use leasehold::watchdog::Watchdog;
use leasehold::{Client, ClientBuilder, Election, Mutex, RwLock, Secret, Semaphore};
use leasehold_core::{Name, Namespace, ScopeName};
use serde::{Deserialize, Serialize};

use crate::baseline::{Baseline, BaselineLock};
use crate::{Result, failed, metrics_recorder};

/// The time in which a watchdog must accept the client.
const WATCHDOG_TIMEOUT: Duration = Duration::from_secs(5);

/// The tenant of all locks.
const TENANT: &str = "default";

/// A store, a part of it, and names in it that nobody else uses.
///
/// The workers of a run get it through a pipe: it may contain a password.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Target {
    url: String,
    password: Option<Secret>,
    namespace: String,
    /// The beginning of all names.
    prefix: String,
}

/// A client of the target, and a baseline beside it.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) baseline: Arc<Baseline>,
    store: Arc<dyn Store>,
    space: Keyspace,
    prefix: String,
}

impl Target {
    pub(crate) fn new(url: &str, password: Option<Secret>, namespace: &str) -> Self {
        Self {
            url: url.into(),
            password,
            namespace: namespace.into(),
            // Two runs at once must not meet.
            prefix: format!("bench/{:016x}", RandomState::new().hash_one(0)),
        }
    }

    /// Whether it is inside one process, which no other can reach.
    pub(crate) fn is_private(&self) -> bool {
        self.url.starts_with("memory:")
    }

    /// Connects. From then on the library's metrics are recorded.
    pub(crate) async fn open(&self) -> Result<Session> {
        let store = self.open_store().await?;
        let baseline = Baseline::new(&self.url, self.password.clone(), Arc::clone(&store));
        self.session(Client::builder(), store, Arc::new(baseline))
    }

    /// Connects once more, with the baseline of another session.
    pub(crate) async fn open_beside(&self, other: &Session) -> Result<Session> {
        let store = self.open_store().await?;
        self.session(Client::builder(), store, Arc::clone(&other.baseline))
    }

    /// Another client on the connections of a session.
    pub(crate) fn reopen(&self, session: &Session) -> Result<Session> {
        self.on(Client::builder(), session)
    }

    /// Another client on the connections of a session, with the watchdog of this machine.
    pub(crate) async fn watched(&self, session: &Session) -> Result<Session> {
        let watched = self.on(Client::builder().watchdog(Watchdog::local()), session)?;
        watched.client.watched(WATCHDOG_TIMEOUT).await?;
        Ok(watched)
    }

    fn on(&self, builder: ClientBuilder, session: &Session) -> Result<Session> {
        let (store, baseline) = (&session.store, &session.baseline);
        self.session(builder, Arc::clone(store), Arc::clone(baseline))
    }

    async fn open_store(&self) -> Result<Arc<dyn Store>> {
        // In memory they would be a part of what is measured.
        if !self.is_private() {
            metrics_recorder::install();
        }
        let mut options = OpenOptions::default();
        options.password.clone_from(&self.password);
        Ok(store::open_with(&self.url, &options).await?)
    }

    fn session(
        &self,
        builder: ClientBuilder,
        store: Arc<dyn Store>,
        baseline: Arc<Baseline>,
    ) -> Result<Session> {
        let builder = builder.namespace(&self.namespace).tenant(TENANT);
        let client = builder.build(Arc::clone(&store))?;
        let namespace = Namespace::parse(&self.namespace).map_err(failed("the namespace"))?;
        let tenant = ScopeName::parse(TENANT).map_err(failed("the tenant"))?;
        Ok(Session {
            client,
            baseline,
            store,
            space: Keyspace::new(namespace, tenant),
            prefix: self.prefix.clone(),
        })
    }
}

impl Session {
    /// A lock of this run.
    pub(crate) fn mutex(&self, name: impl fmt::Display) -> Result<Mutex> {
        Ok(self.client.mutex(format!("{}/{name}", self.prefix))?)
    }

    /// A semaphore of this run.
    pub(crate) fn semaphore(&self, name: impl fmt::Display, permits: u32) -> Result<Semaphore> {
        let name = format!("{}/{name}", self.prefix);
        Ok(self.client.semaphore(name, permits)?)
    }

    /// A read-write lock of this run.
    pub(crate) fn rw_lock(&self, name: impl fmt::Display) -> Result<RwLock> {
        Ok(self.client.rw_lock(format!("{}/{name}", self.prefix))?)
    }

    /// An election of this run.
    pub(crate) fn election(&self, name: impl fmt::Display) -> Result<Election> {
        Ok(self.client.election(format!("{}/{name}", self.prefix))?)
    }

    /// The key of a lock of this run.
    pub(crate) fn key(&self, name: impl fmt::Display) -> Result<Key> {
        self.key_of(&format!("{}/{name}", self.prefix))
    }

    /// The key of a lock by its whole name.
    pub(crate) fn key_of(&self, name: &str) -> Result<Key> {
        let name = Name::parse(name).map_err(failed("the name of a lock"))?;
        Ok(self.space.key(name))
    }

    /// A lock of this run, without the library.
    pub(crate) fn baseline_lock(&self, name: impl fmt::Display) -> Result<BaselineLock> {
        Ok(BaselineLock::new(&self.baseline, self.key(name)?))
    }

    /// The number of locks of this run that are held.
    pub(crate) async fn held(&self) -> Result<usize> {
        let locks = self.client.locks().await?;
        let of_this_run = |name: &str| {
            let rest = name.strip_prefix(&self.prefix);
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        Ok(locks.iter().filter(|lock| of_this_run(&lock.name)).count())
    }

    /// The calls to the store by this process: batches of the library, each a script call in Redis or
    /// a transaction in SQLite, and those of baselines. `None`: there are none in memory.
    pub(crate) fn calls(&self) -> Option<u64> {
        let calls = metrics_recorder::total(metrics_recorder::ROUND_TRIPS) + self.baseline.calls();
        (!self.store().starts_with("memory:")).then_some(calls)
    }

    /// The store's URL without a password.
    pub(crate) fn store(&self) -> String {
        self.store.to_string()
    }
}
