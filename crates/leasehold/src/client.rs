//! The way in: a process's connection to a store.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::{ClientId, Policy};

use crate::clock::{BootClock, Clock};
use crate::config::{self, Config};
use crate::driver::watchdog::WatchdogClient;
use crate::driver::{Context, Driver, Runtime, shutdown};
use crate::store::survey::survey;
use crate::store::{self, About, Keyspace, Store, not_replicated};
#[cfg(feature = "watchdog")]
use crate::watchdog::Watchdog;
#[cfg(feature = "watchdog")]
use crate::watchdog::wire::ClientSecret;
use crate::{Durability, Error, ErrorKind, LockInfo, Mutex, Result, doctor};

/// A process's connection to a store, and the leases that it keeps alive there.
///
/// One per process and store is enough; clones share everything. The last clone and guard to go
/// close the connection.
///
/// It belongs to the process that made it. In a fork of that process each call is an error, each guard reads
/// [`Lost`](crate::State::Lost), and what is dropped releases nothing: connect anew there.
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
    policy: Policy,
    durability: Durability,
}

impl Client {
    /// Connects with the default settings. See [`store::open`] for the URLs.
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::connect`].
    ///
    /// # Panics
    ///
    /// As [`ClientBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().connect(url).await
    }

    /// Settings first, then a connection.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// The lock of this name. Asks no store.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`] if it is empty, longer than 512 bytes, or contains a brace or a
    /// control character.
    pub fn mutex(&self, name: impl AsRef<str>) -> Result<Mutex> {
        let name = config::name(name.as_ref())?;
        let key = self.space.key(name);
        Ok(Mutex::new(
            Arc::clone(&self.driver),
            key,
            self.policy,
            self.durability,
        ))
    }

    /// The locks that are held in this client's namespace and tenant, by name.
    ///
    /// # Errors
    ///
    /// As the store's answer says.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    pub async fn locks(&self) -> Result<Vec<LockInfo>> {
        let entries = self.driver.context.store.list(&self.space).await;
        let entries = entries.map_err(|error| error.at_store(&self.driver.context.store))?;
        Ok(entries.into_iter().map(LockInfo::from).collect())
    }

    /// Waits until a node of the watchdog has let this client in. Returns at once if there is to be none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unreachable`], with the reason, if none has within `patience`.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    #[cfg(feature = "watchdog")]
    pub async fn watched(&self, patience: Duration) -> Result<()> {
        self.driver.watchdog.ready(patience).await
    }

    /// Has the watchdog on this machine watch another process, too: this client is dead when all are gone.
    /// For a child that works under a lock of ours and may outlive us. Answers whether there is a watchdog.
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

    /// Releases every lease that is still held, in batches, ends all waiting, and waits until the store
    /// knows. The guards are lost, and no clone of this client takes a lock any more: whoever waits or
    /// comes later gets [`ErrorKind::ShutDown`].
    ///
    /// Without it, dropped guards release in the background. A program that returns from `main` then
    /// waits up to two seconds for those that were not told yet; one that ends by
    /// [`std::process::exit`] or by a signal does not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unreachable`], with the names of the locks, if the store could not be told of all
    /// within `timeout`. It is told in the background as long as the runtime lives; the leases end by
    /// themselves.
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
        Ok(Shutdown { released })
    }

    fn unreleased(&self, timeout: Duration) -> Error {
        let unconfirmed = self.driver.releases.unconfirmed();
        let names = unconfirmed
            .iter()
            .map(|release| release.request.key.name.as_str());
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

/// How many names an error lists.
const NAMES_LISTED: usize = 10;

/// What became of the leases of a client that was shut down. Made by [`Client::shutdown`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shutdown {
    /// How many were held still, and are released.
    pub released: usize,
}

/// Settings of a [`Client`]. Made by [`Client::builder`].
#[derive(Default)]
#[must_use = "nothing happens until connect"]
pub struct ClientBuilder {
    config: Config,
    clock: Option<Arc<dyn Clock>>,
    #[cfg(feature = "watchdog")]
    watchdog: Option<Watchdog>,
}

impl ClientBuilder {
    /// The ttl of renewed leases: 100 ms to 24 h, 30 s if not set.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.config.ttl = ttl;
        self
    }

    /// How often a lease is renewed: a third of the ttl if not set. A renewal may come a tenth earlier,
    /// so that not all come at once.
    pub fn renew_every(mut self, interval: Duration) -> Self {
        self.config.renew_every = Some(interval);
        self
    }

    /// How long before its deadline a renewed lease is given up, so that its holder has time to stop:
    /// a third of the ttl if not set. With the default interval, too, that is after the second renewal
    /// in a row that failed.
    pub fn margin(mut self, margin: Duration) -> Self {
        self.config.margin = Some(margin);
        self
    }

    /// The longest time a lease is renewed, at least the ttl; without end if not set. A holder that
    /// hangs does not keep the lock for ever then: the lease is in jeopardy after this time, and lost
    /// when its ttl has run out but for the margin.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.config.max_hold = Some(max_hold);
        self
    }

    /// What the keys in the store start with: 1 to 64 letters, digits, `.`, `_`, `-`; `leasehold`
    /// if not set. Clients in different namespaces know nothing of each other.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.config.namespace = namespace.into();
        self
    }

    /// The part of the namespace: the same characters, `default` if not set.
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.config.tenant = tenant.into();
        self
    }

    /// A text that people see who ask who holds a lock.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.config.label = label.into();
        self
    }

    /// The program that people see; the name of this process's executable if not set.
    pub fn program(mut self, program: impl Into<String>) -> Self {
        self.config.program = Some(program.into());
        self
    }

    /// The password of the store; takes the place of one in the URL.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.config.password = Some(password.into());
        self
    }

    /// The password of the sentinels, for a store that is found by them, if they ask for one. That of
    /// the servers is another.
    pub fn sentinel_password(mut self, password: impl Into<String>) -> Self {
        self.config.sentinel_password = Some(password.into());
        self
    }

    /// How long to wait for a connection: 5 s, or a third of the ttl if that is less, if not set.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.connect_timeout = Some(timeout);
        self
    }

    /// How long to wait for an answer of the store: at most a third of the ttl; 2 s, or a sixth of
    /// the ttl if that is less, if not set. Other intervals and margins leave other times.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.config.response_timeout = Some(timeout);
        self
    }

    /// How often a lease may be handed from one task of this process to the next before it is
    /// released and the process queues up behind the others: 256 times if not set, 0 for never.
    pub fn handoff_max(mut self, times: u16) -> Self {
        self.config.handoff.max = times;
        self
    }

    /// How long after its grant a lease may still be handed from task to task: 20 ms if not set.
    pub fn handoff_time(mut self, time: Duration) -> Self {
        self.config.handoff.time = time;
        self
    }

    /// Who must have a grant or a renewal before it counts: only the server that was asked, if not set.
    /// [`Mutex::durability`] sets it for one lock.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.config.durability = durability;
        self
    }

    /// Who keeps leases alive while this process cannot, and releases them when it is dead. Nobody, if not
    /// set. See [`watchdog`](crate::watchdog).
    #[cfg(feature = "watchdog")]
    pub fn watchdog(mut self, watchdog: Watchdog) -> Self {
        self.watchdog = Some(watchdog);
        self
    }

    /// A clock of the caller's, for tests that drive the time.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Opens the store that the URL names. See [`store::open`] for the URLs.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] and [`ErrorKind::InvalidName`] for settings or a URL that cannot
    /// be, [`ErrorKind::Unreachable`] and [`ErrorKind::Unauthorized`] as the store answers; for a
    /// [`ClientBuilder::durability`] that the store does not have, [`ErrorKind::Unsupported`], or
    /// [`ErrorKind::NotReplicated`] for want of replicas.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime with its timers enabled, as the Tokio calls it is made of.
    pub async fn connect(self, url: &str) -> Result<Client> {
        let options = self.config.open_options()?;
        // Checked before the store is touched.
        self.config.space()?;
        config::check_durability(self.config.durability, &self.config.policy()?)?;
        let store = store::open(url, &options).await?;
        store.check(self.config.durability).await?;
        #[cfg(feature = "watchdog")]
        let required = self
            .watchdog
            .as_ref()
            .is_some_and(|watchdog| watchdog.required);
        let client = self.build(store)?;
        #[cfg(feature = "watchdog")]
        if required {
            client.watched(options.connect_timeout).await?;
        }
        Ok(client)
    }

    /// Looks at the store that the URL names, for what would lose locks: see [`doctor`]. Nothing in
    /// it is changed, and a file that is missing is not made.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use leasehold::Client;
    /// use leasehold::doctor::Severity;
    ///
    /// let report = Client::builder().examine("memory:").await?;
    /// assert_eq!(report.severity(), Severity::Warning);
    /// for finding in &report.findings {
    ///     println!("{}: {}", finding.severity, finding.seen);
    /// }
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::connect`], but for stores that are there and are not fit for locks: of
    /// those the report tells.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    ///
    /// # Panics
    ///
    /// As [`ClientBuilder::connect`].
    pub async fn examine(self, url: &str) -> Result<doctor::Report> {
        let policy = self.config.policy()?;
        let (options, space) = (self.config.open_options()?, self.config.space()?);
        let survey = survey(url, &options, &space, self.config.durability).await?;
        Ok(doctor::Report::of(&survey, policy.ttl))
    }

    /// A client over a store that is open already.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] and [`ErrorKind::InvalidName`] for settings that cannot be, and
    /// outside a Tokio runtime.
    pub fn build(self, store: Arc<dyn Store>) -> Result<Client> {
        let policy = self.config.policy()?;
        let space = self.config.space()?;
        let durability = self.config.durability;
        config::check_durability(durability, &policy)?;
        if durability.is_replicated() && !store.has_replicas() {
            return Err(not_replicated(&store));
        }
        let runtime = Runtime::try_current().map_err(|error| {
            let message = "a client must be built inside a Tokio runtime; \
                           see leasehold::blocking for programs without one";
            Error::new(ErrorKind::InvalidConfig, message).with_source(error)
        })?;
        let clock = self.clock.unwrap_or_else(|| Arc::new(BootClock));
        let about = about(&self.config);
        #[cfg(feature = "watchdog")]
        let (client, watchdog) = match self.watchdog {
            Some(watchdog) => {
                let secret = ClientSecret::from_random(random()?);
                let client = secret.client_id();
                let who = (secret, &space, &about);
                (
                    client,
                    WatchdogClient::start(watchdog, &store, &clock, &runtime, who)?,
                )
            }
            None => (ClientId::from_random(random()?), WatchdogClient::default()),
        };
        #[cfg(not(feature = "watchdog"))]
        let (client, watchdog) = (ClientId::from_random(random()?), WatchdogClient::default());
        let driver = Driver::start(
            Context::new(store, clock, runtime),
            (client, space.clone(), about),
            self.config.handoff,
            watchdog,
        );
        Ok(Client {
            driver,
            space,
            policy,
            durability,
        })
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("ttl", &self.config.ttl)
            .field("namespace", &self.config.namespace)
            .field("tenant", &self.config.tenant)
            .finish_non_exhaustive()
    }
}

/// What a client id is made of.
fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| {
        let message = "the system has no random numbers for a client id";
        Error::new(ErrorKind::Unsupported, message).with_source(error)
    })?;
    Ok(bytes)
}

fn about(config: &Config) -> About {
    let own_program = || {
        let path = std::env::current_exe().ok()?;
        Some(path.file_name()?.to_string_lossy().into_owned())
    };
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    About {
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
        since_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
    }
}
