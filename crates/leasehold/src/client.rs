//! The client: a process's connection to a store.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use leasehold_core::{ClientId, Completion, LeaseOptions};

use crate::clock::{BootClock, Clock};
use crate::config::{self, Config};
use crate::driver::context::AcquireOptions;
use crate::driver::watchdog::WatchdogClient;
use crate::driver::{Context, Driver, Runtime, report, shutdown};
#[cfg(feature = "redis")]
use crate::store::RedisAddress;
use crate::store::{self, ClientInfo, Keyspace, OpenOptions, Store, not_replicated};
#[cfg(feature = "watchdog")]
use crate::watchdog::wire::ClientSecret;
#[cfg(feature = "watchdog")]
use crate::watchdog::{Watchdog, WatchdogStatus};
use crate::{
    CompletionInfo, Durability, Election, Error, ErrorKind, Job, JobBuilder, Latch, LockInfo,
    Mutex, Result, Secret,
};

/// A process's connection to a store, and the leases that it keeps alive there.
///
/// One per process and store is enough; clones share everything. The connection closes when the last clone
/// and the last guard are dropped.
///
/// A client belongs to the process that made it. In a fork of that process each call is an error, each guard
/// reads [`Lost`](crate::State::Lost), and a guard that is dropped releases nothing: connect anew there.
/// A SQLite file that the process has open cannot be opened in a fork of it. It is closed when the last client
/// on it was dropped, and its runtime has run on or was dropped.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use leasehold::Client;
///
/// let client = Client::builder()
///     .ttl(Duration::from_secs(15))
///     .namespace("billing")
///     .label("nightly run")
///     .connect("memory:")
///     .await?;
/// let guard = client.mutex("invoices")?.lock().await?;
/// assert_eq!(client.locks().await?[0].name, "invoices");
/// guard.release().await?;
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    driver: Arc<Driver>,
    space: Keyspace,
    options: AcquireOptions,
}

impl Client {
    /// Connects with the default settings. See [`store::open`] for the URLs.
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::connect`].
    ///
    /// # Cancel safety
    ///
    /// As [`ClientBuilder::connect`].
    ///
    /// # Panics
    ///
    /// As [`ClientBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().connect(url).await
    }

    /// A builder for a client with other settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// The lock with this name. Sends no request.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`] if it is empty, longer than 512 bytes, or contains a brace or a
    /// control character.
    pub fn mutex(&self, name: impl AsRef<str>) -> Result<Mutex> {
        let key = self.space.key(config::name(name.as_ref())?);
        Ok(Mutex::new(Arc::clone(&self.driver), key, self.options))
    }

    /// The election with this name, whose leader holds the lock with this name. Sends no request.
    ///
    /// # Errors
    ///
    /// As [`Client::mutex`].
    pub fn election(&self, name: impl AsRef<str>) -> Result<Election> {
        self.mutex(name).map(Election::new)
    }

    /// The job with this name, which runs under the lock with this name. [`JobBuilder::every`] is its period. Sends no
    /// request. See [`Job`].
    ///
    /// # Errors
    ///
    /// As [`Client::mutex`], and [`ErrorKind::Unsupported`] over many masters, which keep no records of completed runs.
    pub fn job(&self, name: impl AsRef<str>) -> Result<JobBuilder> {
        self.mutex(name)?.job()
    }

    /// The job that runs once for a key, such as a version. Sends no request. See [`Job`].
    ///
    /// # Errors
    ///
    /// As [`Client::job`] and [`JobBuilder::once`].
    pub fn once(&self, name: impl AsRef<str>, key: impl AsRef<str>) -> Result<Job> {
        self.job(name)?.once(key)
    }

    /// The latch with this name, which opens when so many have arrived: 1 to 10,000. Sends no request. See [`Latch`].
    ///
    /// # Errors
    ///
    /// As [`Client::mutex`], [`ErrorKind::InvalidConfig`] for another count, and [`ErrorKind::Unsupported`] over many
    /// masters, which keep no latches.
    pub fn latch(&self, name: impl AsRef<str>, count: u32) -> Result<Latch> {
        let key = self.space.key(config::name(name.as_ref())?);
        Latch::new(Arc::clone(&self.driver), key, count)
    }

    /// The last completed run of each job in this client's namespace and tenant, and of each key, by name. Records that
    /// this version cannot read are not listed; a warning of `tracing` names them.
    ///
    /// # Errors
    ///
    /// As the store replies. [`ErrorKind::Unsupported`] over many masters.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    pub async fn completions(&self) -> Result<Vec<CompletionInfo>> {
        let stored = self.driver.context.store.completions(&self.space).await;
        let stored = stored.map_err(|error| error.at_store(&self.driver.context.store))?;
        let readable = stored.iter().filter_map(|(key, kind, annotation)| {
            let name = &key.name;
            match Completion::parse(&annotation.text) {
                Ok(run) => Some(CompletionInfo::new(name, kind, annotation, &run)),
                Err(error) => {
                    report(|| {
                        let lock = name.as_str();
                        tracing::warn!(lock, %error, "the record of a completed run cannot be read");
                    });
                    None
                }
            }
        });
        Ok(readable.collect())
    }

    /// The locks that are held in this client's namespace and tenant, by name, with their waiters.
    ///
    /// # Errors
    ///
    /// As the store replies.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    pub async fn locks(&self) -> Result<Vec<LockInfo>> {
        let entries = self.driver.context.store.list(&self.space).await;
        let entries = entries.map_err(|error| error.at_store(&self.driver.context.store))?;
        Ok(entries.into_iter().map(LockInfo::from).collect())
    }

    /// The client info of a client by its id, which its leases have: see [`LeaseId`](crate::LeaseId). It is written a moment
    /// after the first lease of the client, and kept for at least two minutes after the last one. `None`: it is not known.
    ///
    /// # Errors
    ///
    /// As the store replies.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    pub async fn client_info(&self, id: ClientId) -> Result<Option<ClientInfo>> {
        let context = &self.driver.context;
        let found = context.store.client_info(&self.space, id).await;
        found.map_err(|error| error.at_store(&context.store))
    }

    /// The id of this client, which all its leases have: those that it holds, and those with which it waits in
    /// [`LockInfo::waiters`]. Clones have the same id.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.driver.client
    }

    /// Waits until a node of the watchdog has accepted this client. Returns at once for a client without a
    /// watchdog.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NoWatchdog`], with the reason, if none has within `timeout`.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    #[cfg(feature = "watchdog")]
    pub async fn watched(&self, timeout: Duration) -> Result<()> {
        self.driver.watchdog.ready(timeout).await
    }

    /// The connections to the nodes of the watchdog, and their changes: whether a node watches the leases of this
    /// client, and why not.
    #[cfg(feature = "watchdog")]
    #[must_use]
    pub fn watchdog_status(&self) -> WatchdogStatus {
        self.driver.watchdog.status()
    }

    /// Has the watchdog on this machine watch another process, too: this client counts as dead when all have
    /// ended. For a child process that works under a lock of this one and may outlive it. Returns whether the
    /// client has a watchdog.
    ///
    /// A node that cannot watch the process, because it watches as many as it may, forgets this client.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] if there is no such process, [`ErrorKind::Unsupported`] where processes
    /// cannot be watched.
    #[cfg(all(feature = "watchdog", target_os = "linux"))]
    pub fn watch_process(&self, pid: u32) -> Result<bool> {
        use rustix::process::{Pid, PidfdFlags, pidfd_open};

        let none = || {
            Error::new(
                ErrorKind::InvalidConfig,
                format!("there is no process {pid}"),
            )
        };
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        match pidfd_open(number.ok_or_else(none)?, PidfdFlags::empty()) {
            Ok(process) => Ok(self.driver.watchdog.add_process(process)),
            Err(rustix::io::Errno::SRCH | rustix::io::Errno::INVAL) => Err(none()),
            Err(error) => {
                let message = "this system does not watch processes";
                Err(Error::new(ErrorKind::Unsupported, message).with_source(error))
            }
        }
    }

    /// The store, as its URL without a password.
    #[must_use]
    pub fn store(&self) -> &dyn fmt::Display {
        &self.driver.context.store
    }

    /// Releases every lease that is still held, in batches, ends all waiting, and waits until the store has
    /// confirmed the releases. The guards read lost, and no clone of this client acquires a lock any more:
    /// present and later waiters get [`ErrorKind::ShutDown`]. The nodes of a watchdog forget the client.
    ///
    /// Without it, dropped guards release in the background. A program that returns from `main` then
    /// waits up to two seconds for releases that are not confirmed; one that ends by
    /// [`std::process::exit`] or by a signal does not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unreachable`], with the names of the locks, if the store did not confirm all releases
    /// within `timeout`. They are repeated in the background as long as the runtime lives; the leases expire
    /// by themselves.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the releases go on in the background.
    pub async fn shutdown(&self, timeout: Duration) -> Result<Shutdown> {
        let end = self.driver.context.clock.now().after(timeout);
        let released = tokio::select! {
            biased;
            released = shutdown::shut_down(&self.driver) => released,
            () = self.driver.context.clock.sleep_until(end) => return Err(self.unreleased(timeout)),
        };
        #[cfg(feature = "watchdog")]
        tokio::select! {
            () = self.driver.watchdog.disconnect() => {}
            () = self.driver.context.clock.sleep_until(end) => {}
        }
        Ok(Shutdown { released })
    }

    fn unreleased(&self, timeout: Duration) -> Error {
        let unconfirmed = self.driver.releases.unconfirmed();
        let names = unconfirmed
            .iter()
            .map(|release| release.key().name.as_str());
        let listed: Vec<_> = names.take(NAMES_LISTED).collect();
        let more = match unconfirmed.len() - listed.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let message = format!(
            "{} of its locks could not be released within {timeout:?}: {}{more}; their leases end them",
            unconfirmed.len(),
            listed.join(", "),
        );
        let error = Error::new(ErrorKind::Unreachable, message);
        let error = error.at_store(&self.driver.context.store);
        match unconfirmed.into_iter().find_map(|release| release.error) {
            Some(cause) => error.with_source(cause),
            None => error,
        }
    }
}

/// How many names an error lists at most.
const NAMES_LISTED: usize = 10;

/// The result of the shutdown of a client. Made by [`Client::shutdown`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shutdown {
    /// How many leases were held, and are released.
    pub released: usize,
}

/// Settings of a [`Client`]. Made by [`Client::builder`].
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

    /// The interval between renewals: a third of the ttl if not set. A renewal may be sent a tenth earlier, so
    /// that not all are sent at once.
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

    /// The longest time for which a lease is renewed, at least the ttl; unlimited if not set. With it, a
    /// holder that hangs does not keep the lock for ever: the lease is in jeopardy after this time, and lost a
    /// margin before it expires.
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

    /// The part of the namespace: the same characters, `default` if not set.
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
    pub fn password(mut self, password: impl Into<Secret>) -> Self {
        self.config.password = Some(password.into());
        self
    }

    /// The password of the sentinels, for a store that is found by them. That of the servers is another.
    pub fn sentinel_password(mut self, password: impl Into<Secret>) -> Self {
        self.config.sentinel_password = Some(password.into());
        self
    }

    /// The authorities that are trusted for a store over TLS, as certificates in PEM; those of the system if neither
    /// this nor the URL names any. Takes the place of the file in the URL.
    pub fn tls_ca(mut self, pem: impl Into<String>) -> Self {
        self.config.tls_ca = Some(pem.into());
        self
    }

    /// The certificate of this client and its private key in PEM, for servers over TLS that require one. Takes the
    /// place of the files in the URL.
    pub fn tls_identity(mut self, certificate: impl Into<String>, key: impl Into<Secret>) -> Self {
        self.config.tls_identity = Some((certificate.into(), key.into()));
        self
    }

    /// How long to wait for a connection: 5 s, or a third of the ttl if that is less, if not set.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.connect_timeout = Some(timeout);
        self
    }

    /// How long to wait for a reply of the store: at most a third of the ttl; 2 s, or a sixth of the ttl if
    /// that is less, if not set. Other intervals and margins leave other times.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.config.response_timeout = Some(timeout);
        self
    }

    /// How often a lease may be handed off from one task of this process to the next before it is released
    /// and the process joins the queue behind the others: 256 times if not set, 0 for never.
    pub fn handoff_max(mut self, times: u16) -> Self {
        self.config.handoff.max = times;
        self
    }

    /// How long after its grant a lease may be handed off: 20 ms if not set.
    pub fn handoff_time(mut self, time: Duration) -> Self {
        self.config.handoff.time = time;
        self
    }

    /// The replicas that must acknowledge a grant or renewal before it takes effect: none, if not set.
    /// [`Mutex::durability`] sets it for one lock.
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

    /// Replaces the clock, for tests that control the time.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Opens the store that the URL names. See [`store::open`] for the URLs.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] and [`ErrorKind::InvalidName`] for invalid settings or an invalid URL,
    /// [`ErrorKind::Unreachable`], [`ErrorKind::Unauthorized`] and [`ErrorKind::WrongPassword`] as the store replies; for a
    /// [`ClientBuilder::durability`] that the store does not support, [`ErrorKind::Unsupported`], or
    /// [`ErrorKind::NotReplicated`] if it has too few replicas.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it closes what it has opened.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime with its timers enabled.
    pub async fn connect(self, url: &str) -> Result<Client> {
        let options = self.checked_options()?;
        let store = store::open(url, &options).await?;
        self.connected(store, options.connect_timeout).await
    }

    /// Connects to a Redis server by the parts of its address, as [`ClientBuilder::connect`] does by its URL.
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::connect`].
    ///
    /// # Cancel safety
    ///
    /// As [`ClientBuilder::connect`].
    ///
    /// # Panics
    ///
    /// As [`ClientBuilder::connect`].
    #[cfg(feature = "redis")]
    pub async fn connect_redis(self, address: &RedisAddress) -> Result<Client> {
        let options = self.checked_options()?;
        let store = store::open_redis(address, &options).await?;
        self.connected(store, options.connect_timeout).await
    }

    /// The options of opening the store. All settings are checked before the store is touched.
    fn checked_options(&self) -> Result<OpenOptions> {
        let options = self.config.open_options()?;
        self.config.space()?;
        config::check_durability(self.config.durability, &self.config.policy()?)?;
        Ok(options)
    }

    /// A client on a store that was just opened.
    #[cfg_attr(
        not(feature = "watchdog"),
        expect(unused_variables, reason = "only a watchdog is waited for")
    )]
    async fn connected(self, store: Arc<dyn Store>, connect_timeout: Duration) -> Result<Client> {
        store.check(self.config.durability).await?;
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

    /// A client on a store that is open already.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] and [`ErrorKind::InvalidName`] for invalid settings, and outside a Tokio
    /// runtime.
    pub fn build(self, store: Arc<dyn Store>) -> Result<Client> {
        let policy = self.config.policy()?;
        let space = self.config.space()?;
        let durability = self.config.durability;
        config::check_durability(durability, &policy)?;
        if durability.is_replicated() && !store.capabilities().replicas {
            return Err(not_replicated(&store));
        }
        let runtime = Runtime::try_current().map_err(|error| {
            let message = "a client must be built inside a Tokio runtime; \
                           see leasehold::blocking for programs without one";
            Error::new(ErrorKind::InvalidConfig, message).with_source(error)
        })?;
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
        let lease = LeaseOptions { policy, fixed };
        Ok(Client {
            driver,
            space,
            options: AcquireOptions { lease, durability },
        })
    }
}

fn client_info(config: &Config) -> ClientInfo {
    let own_program = || {
        let path = std::env::current_exe().ok()?;
        Some(path.file_name()?.to_string_lossy().into_owned())
    };
    ClientInfo {
        host: rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned(),
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
