//! Where a run takes place.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::Duration;

use leasehold::store::OpenOptions;
use leasehold::store::yardstick::Yardstick;
use leasehold::watchdog::Watchdog;
use leasehold::{Client, ClientBuilder, Mutex, Secret};
use serde::{Deserialize, Serialize};

/// How long a watchdog has to let us in.
const PATIENCE: Duration = Duration::from_secs(5);

/// A store, a part of it, and names there that nobody else uses.
///
/// The other processes of a run get it through a pipe: it may contain a password.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Place {
    url: String,
    password: Option<String>,
    namespace: String,
    tenant: String,
    /// What all names begin with.
    names: String,
}

/// A connection there.
#[derive(Clone, Debug)]
pub(super) struct Desk {
    pub(super) yardstick: Arc<Yardstick>,
    pub(super) client: Client,
    names: String,
}

impl Place {
    pub(crate) fn new(
        url: String,
        password: Option<String>,
        namespace: String,
        tenant: String,
    ) -> Self {
        Self {
            url,
            password,
            namespace,
            tenant,
            // Two benches at once must not meet.
            names: format!("bench/{:016x}", RandomState::new().hash_one(0)),
        }
    }

    /// Whether it is inside one process, where no other can come.
    pub(super) fn is_private(&self) -> bool {
        self.url.starts_with("memory:")
    }

    /// Whether it waits for a disk.
    pub(super) fn is_on_disk(&self) -> bool {
        self.url.starts_with("sqlite:")
    }

    /// Connects.
    pub(super) async fn open(&self) -> leasehold::Result<Desk> {
        let mut options = OpenOptions::default();
        options.password = self.password.clone().map(Secret::from);
        let yardstick = Arc::new(Yardstick::open(&self.url, &options).await?);
        self.client(yardstick)
    }

    /// Another client on the connection of the first.
    pub(super) fn again(&self, desk: &Desk) -> leasehold::Result<Desk> {
        self.client(Arc::clone(&desk.yardstick))
    }

    /// Another client on the connection of the first, that a watchdog looks after.
    pub(super) async fn watched(
        &self,
        desk: &Desk,
        watchdog: &Watchdog,
    ) -> leasehold::Result<Desk> {
        let yardstick = Arc::clone(&desk.yardstick);
        let builder = Client::builder().watchdog(watchdog.clone());
        let watched = self.of(builder, yardstick)?;
        watched.client.watched(PATIENCE).await?;
        Ok(watched)
    }

    fn client(&self, yardstick: Arc<Yardstick>) -> leasehold::Result<Desk> {
        self.of(Client::builder(), yardstick)
    }

    fn of(&self, builder: ClientBuilder, yardstick: Arc<Yardstick>) -> leasehold::Result<Desk> {
        let builder = builder.namespace(&self.namespace).tenant(&self.tenant);
        let client = builder.build(yardstick.store())?;
        Ok(Desk {
            yardstick,
            client,
            names: self.names.clone(),
        })
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("namespace", &self.namespace)
            .field("tenant", &self.tenant)
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

impl Desk {
    /// A lock of this run.
    pub(super) fn mutex(&self, name: impl fmt::Display) -> leasehold::Result<Mutex> {
        self.client.mutex(format!("{}/{name}", self.names))
    }

    /// How many locks of this run somebody holds.
    pub(super) async fn held(&self) -> leasehold::Result<usize> {
        let locks = self.client.locks().await?;
        let of_this_run = |name: &str| {
            let rest = name.strip_prefix(&self.names);
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        Ok(locks.iter().filter(|lock| of_this_run(&lock.name)).count())
    }

    /// The store's URL without a password.
    pub(super) fn store(&self) -> String {
        self.client.store().to_string()
    }
}
