//! The settings of a client, and its start.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use leasehold_core::{Claim, ClientId, RenewalOptions};
use tokio::runtime::TryCurrentError;

use super::Client;
#[cfg(doc)]
use crate::LeaseOptions;
use crate::clock::{BootClock, Clock};
use crate::config::{self, Config};
use crate::driver::context::AcquireOptions;
use crate::driver::watchdog::WatchdogClient;
use crate::driver::{Context, Driver, Runtime, has_timers};
use crate::store::{ClientInfo, Feature, IntoStore, OpenOptions, Query, Store};
#[cfg(feature = "watchdog")]
use crate::watchdog::Watchdog;
#[cfg(feature = "watchdog")]
use crate::watchdog::wire::ClientSecret;
use crate::{Durability, Error, ErrorKind, Result, Secret};

/// Settings of a [`Client`]. Made by [`Client::builder`].
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use leasehold::Client;
///
/// let client = Client::builder()
///     .ttl(Duration::from_secs(15))
///     .renew_every(Duration::from_secs(3))
///     .connect_timeout(Duration::from_secs(2))
///     .response_timeout(Duration::from_secs(1))
///     .tenant("eu")
///     .username("app")
///     .password("from the configuration")
///     .tls_ca("certificates in PEM")
///     .tls_identity("a certificate in PEM", "its key in PEM")
///     .connect("memory:") // or rediss://host
///     .await?;
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Default)]
#[must_use = "nothing happens until connect"]
pub struct ClientBuilder {
    pub(crate) config: Config,
    clock: Option<Arc<dyn Clock>>,
    #[cfg(feature = "watchdog")]
    watchdog: Option<Watchdog>,
}

impl ClientBuilder {
    /// The ttl of renewed leases: 100 ms to 24 h, 30 s if not set.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.config.ttl = Some(ttl);
        self
    }

    /// The interval between renewals: a third of the ttl if not set. A renewal may be sent a tenth of it earlier, so
    /// that the renewals of many leases are spread.
    pub fn renew_every(mut self, interval: Duration) -> Self {
        self.config.renew_every = Some(interval);
        self
    }

    /// How long before its deadline a renewed lease is given up, so that its holder has time to stop: a third
    /// of the ttl if not set. With the default interval, that is after two renewals in a row have failed.
    pub fn margin(mut self, margin: Duration) -> Self {
        self.config.margin = Some(margin);
        self
    }

    /// The longest hold, at least the ttl; unlimited if not set. After this time the lease is no longer renewed: it is in
    /// jeopardy, and lost a [margin](Self::margin) before it expires. So a holder that hangs does not keep the lock for
    /// ever. [`LeaseOptions::max_hold`] sets it for one lock.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.config.max_hold = Some(max_hold);
        self
    }

    /// The prefix of the keys in the store: 1 to 64 letters, digits, `.`, `_`, `-`; `leasehold` if not set.
    /// Clients in different namespaces do not see each other's locks.
    ///
    /// A namespace may end with `@` and a number of buckets, 1 to 16384. In a Redis Cluster the names of `jobs@64`
    /// share 64 slots, so that their requests travel together. `jobs`, `jobs@16` and `jobs@64` are three namespaces:
    /// all clients use the same number.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.config.namespace = Some(namespace.into());
        self
    }

    /// The tenant, a part of the namespace, in the same characters; `default` if not set. Clients of different tenants do
    /// not see each other's locks.
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.config.tenant = Some(tenant.into());
        self
    }

    /// A text shown with the holder of a lock.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.config.label = label.into();
        self
    }

    /// The program shown with the holder of a lock; the name of this process's executable if not set.
    #[doc(hidden)]
    pub fn program(mut self, program: impl Into<String>) -> Self {
        self.config.program = Some(program.into());
        self
    }

    /// The user of the store; takes the place of one in the URL.
    pub fn username(mut self, username: impl Into<String>) -> Self {
        self.config.username = Some(username.into());
        self
    }

    /// The password of the store; takes the place of one in the URL.
    ///
    /// The variables `LEASEHOLD_PASSWORD` and `LEASEHOLD_STORE` are those of the command: the library does not read them.
    /// Without a password, a PostgreSQL store reads `PGPASSWORD`, the file of `?passfile=` or `PGPASSFILE`, or `~/.pgpass`,
    /// and a bucket the variables of its service.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.config.password = Some(Secret::new(password));
        self
    }

    /// The password of the sentinels, for a `redis+sentinel://` store. [`ClientBuilder::password`] is that of the servers.
    pub fn sentinel_password(mut self, password: impl Into<String>) -> Self {
        self.config.sentinel_password = Some(Secret::new(password));
        self
    }

    /// The authorities that are trusted for a store over TLS, as certificates in PEM; those of the system if neither
    /// this nor the URL names any. Takes the place of the file in the URL.
    ///
    /// TLS is that of `rustls` with `ring`. Stores on Redis use the crypto provider of the process instead, and install
    /// `ring` if there is none: a program needs to install none, or does so before it connects.
    pub fn tls_ca(mut self, pem: impl Into<String>) -> Self {
        self.config.tls_ca = Some(pem.into());
        self
    }

    /// The certificate of this client and its private key in PEM, for servers over TLS that require one. Takes the
    /// place of the files in the URL.
    pub fn tls_identity(mut self, certificate: impl Into<String>, key: impl Into<String>) -> Self {
        self.config.tls_identity = Some((certificate.into(), Secret::new(key)));
        self
    }

    /// How long to wait for a connection: 5 s, or a third of the ttl if that is less, if not set.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.connect_timeout = Some(timeout);
        self
    }

    /// How long to wait for a reply of the store: 2 s, or a sixth of the ttl if that is less, if not set. It can be at most
    /// a third of the ttl, or the time that another interval and margin leave.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.config.response_timeout = Some(timeout);
        self
    }

    /// How often a lease may be handed off from one task of this process to the next, within 20 ms after its grant,
    /// before it is released and the process joins the queue behind the others: 256 times if not set, 0 for never.
    pub fn handoff_max(mut self, times: u16) -> Self {
        self.config.handoff.max = times;
        self
    }

    /// How long after its grant a lease may be handed off: 20 ms if not set.
    #[doc(hidden)]
    pub fn handoff_time(mut self, time: Duration) -> Self {
        self.config.handoff.time = time;
        self
    }

    /// The replicas that must acknowledge a grant or renewal before it takes effect: none, if not set.
    /// [`LeaseOptions::durability`] sets it for one lock.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.config.durability = durability;
        self
    }

    /// The watchdog that keeps leases alive while this process cannot, and releases them when it is dead:
    /// none, if not set. See [`watchdog`](crate::watchdog).
    #[cfg(feature = "watchdog")]
    pub fn watchdog(mut self, watchdog: Watchdog) -> Self {
        self.watchdog = Some(watchdog);
        self
    }

    /// Replaces the clock, for tests that control the time. Give the same clock to the store: see
    /// [`MemoryStore::with_clock`](crate::store::MemoryStore::with_clock), which has an example.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Connects to the store that a URL names, or to an open store. See [`IntoStore`].
    ///
    /// # Errors
    ///
    /// * [`ErrorKind::InvalidConfig`] and [`ErrorKind::InvalidName`] for invalid settings, an invalid URL, a user, password or
    ///   certificate for a store that is open already, and outside a Tokio runtime with timers.
    /// * [`ErrorKind::Unreachable`], [`ErrorKind::Unauthorized`], [`ErrorKind::NoPassword`] and
    ///   [`ErrorKind::WrongPassword`] as the store replies.
    /// * [`ErrorKind::Unsupported`] for a [`ClientBuilder::durability`] of a store without replicas, and
    ///   [`ErrorKind::NotReplicated`] if it has too few.
    /// * [`ErrorKind::NoWatchdog`] if a watchdog is required and no node accepts the client.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it closes what it has opened.
    pub async fn connect(self, store: impl IntoStore) -> Result<Client> {
        let options = self.checked_options()?;
        let store = store.into_source().open(&options).await?;
        self.connected(store, options.connect_timeout).await
    }

    /// The options of opening the store. All settings are checked before the store is touched.
    #[doc(hidden)]
    pub fn checked_options(&self) -> Result<OpenOptions> {
        let options = self.config.open_options()?;
        self.config.space()?;
        config::check_durability(self.config.durability, &self.config.policy()?)?;
        check_timers()?;
        Ok(options)
    }

    /// A client on a store that is checked for what the settings need.
    #[cfg_attr(
        not(feature = "watchdog"),
        expect(unused_variables, reason = "only a watchdog is waited for")
    )]
    async fn connected(self, store: Arc<dyn Store>, connect_timeout: Duration) -> Result<Client> {
        let durability = Query::Durability(self.config.durability);
        store.read(durability).await?;
        #[cfg(feature = "watchdog")]
        let required = self
            .watchdog
            .as_ref()
            .is_some_and(|watchdog| watchdog.required);
        let client = self.build(store)?;
        #[cfg(feature = "watchdog")]
        if required {
            let watchdog = &client.driver.watchdog;
            watchdog.ready_at_start(connect_timeout).await?;
        }
        Ok(client)
    }

    /// A client on an open store, without a query whether that has what the settings need.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] and [`ErrorKind::InvalidName`] for invalid settings, and outside a Tokio
    /// runtime.
    #[doc(hidden)]
    pub fn build(self, store: Arc<dyn Store>) -> Result<Client> {
        let policy = self.config.policy()?;
        let space = self.config.space()?;
        let durability = self.config.durability;
        config::check_durability(durability, &policy)?;
        if durability.is_replicated() {
            let kind = store.capabilities().kind;
            kind.check(Feature::Replicas, &store)?;
        }
        let runtime = Runtime::try_current().map_err(no_runtime)?;
        let clock = self.clock.unwrap_or_else(|| Arc::new(BootClock));
        let info = client_info(&self.config);
        let client = || crate::random::bytes("a client id").map(ClientId::from_random);
        #[cfg(feature = "watchdog")]
        let (client, watchdog) = match self.watchdog {
            Some(watchdog) => {
                let secret = ClientSecret::from_random(crate::random::bytes("a client id")?);
                let client = secret.client_id();
                let who = (secret, &space, &info);
                (
                    client,
                    WatchdogClient::start(watchdog, &store, &clock, &runtime, who)?,
                )
            }
            None => (client()?, WatchdogClient::default()),
        };
        #[cfg(not(feature = "watchdog"))]
        let (client, watchdog) = (client()?, WatchdogClient);
        let driver = Driver::start(
            Context::new(store, clock, runtime),
            (client, space.clone(), info),
            self.config.handoff,
            watchdog,
        );
        let fixed = None;
        let lease = RenewalOptions { policy, fixed };
        Ok(Client {
            driver,
            space,
            options: AcquireOptions {
                lease,
                durability,
                claim: Claim::Mutex,
                run: None,
            },
        })
    }
}

fn no_runtime(error: TryCurrentError) -> Error {
    let message = "a client must be built inside a Tokio runtime; see leasehold::blocking for programs without one";
    Error::new(ErrorKind::InvalidConfig, message).with_source(error)
}

/// Checks the runtime before a store is opened, whose tasks would panic without timers.
fn check_timers() -> Result<()> {
    tokio::runtime::Handle::try_current().map_err(no_runtime)?;
    if !has_timers() {
        let message = "this Tokio runtime has no timers; build it with enable_all";
        return Err(Error::new(ErrorKind::InvalidConfig, message));
    }
    Ok(())
}

fn client_info(config: &Config) -> ClientInfo {
    let own_program = || {
        let path = std::env::current_exe().ok()?;
        Some(path.file_name()?.to_string_lossy().into_owned())
    };
    ClientInfo {
        host: host(),
        pid: std::process::id(),
        program: config
            .program
            .clone()
            .or_else(own_program)
            .unwrap_or_default(),
        label: config.label.clone(),
        since: SystemTime::now(),
    }
}

/// The name of this machine.
#[cfg(unix)]
fn host() -> String {
    let system = rustix::system::uname();
    system.nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}
