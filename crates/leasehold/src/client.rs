//! The client: a process's connection to a store.

mod builder;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{ClientId, Completion as CompletionRecord, CompletionError, Instant};

pub use self::builder::ClientBuilder;
#[cfg(doc)]
use crate::LeaseOptions;
use crate::config;
use crate::driver::context::AcquireOptions;
use crate::driver::{Driver, report, shutdown};
use crate::store::{ClientInfo, IntoStore, Keyspace, Query};
#[cfg(feature = "watchdog")]
use crate::watchdog::WatchdogStatus;
use crate::{
    Completion, Election, Error, ErrorKind, Job, Latch, LockInfo, LockRequest, LockSet, Mutex,
    Result, RwLock, Semaphore,
};

/// A process's connection to a store, and the leases that it keeps alive there.
///
/// One per process and store is enough; clones share everything. The connection closes when the last clone
/// and the last guard are dropped.
///
/// A client belongs to the process that made it. In a fork of that process each call is an error, each guard
/// reads [`Lost`](crate::State::Lost), and a dropped guard releases nothing: connect anew there.
/// A fork cannot open a SQLite file that its parent has open. A file is closed after the last client
/// on it was dropped and its runtime has run on, or was dropped.
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
    /// Connects with the default settings to the store that a URL names, or to an open store. See [`IntoStore`].
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::connect`].
    ///
    /// # Cancel safety
    ///
    /// As [`ClientBuilder::connect`].
    pub async fn connect(store: impl IntoStore) -> Result<Self> {
        Self::builder().connect(store).await
    }

    /// A builder for a client with other settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// The lock with this name. Sends no request.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`] if it is empty, longer than 512 bytes, or has a brace, a control
    /// character or an outer space.
    pub fn mutex(&self, name: impl AsRef<str>) -> Result<Mutex> {
        let key = self.space.key(config::name(name.as_ref())?);
        let driver = Arc::clone(&self.driver);
        Ok(Mutex::new(driver, key, self.options.clone()))
    }

    /// The semaphore with this name, which has so many permits: 1 or more. Sends no request. See [`Semaphore`].
    ///
    /// # Errors
    ///
    /// As [`Client::mutex`], [`ErrorKind::InvalidConfig`] for zero permits, and [`ErrorKind::Unsupported`] over many
    /// masters, where several could grant the last permit.
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Result<Semaphore> {
        Semaphore::new(self.mutex(name)?, permits)
    }

    /// The read-write lock with this name. Sends no request. See [`RwLock`].
    ///
    /// # Errors
    ///
    /// As [`Client::mutex`], and [`ErrorKind::Unsupported`] over many masters.
    pub fn rw_lock(&self, name: impl AsRef<str>) -> Result<RwLock> {
        RwLock::new(self.mutex(name)?)
    }

    /// Several locks of this client that are acquired at once: all or none. Sends no request. See [`LockSet`].
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let (from, to) = (client.mutex("account/1")?, client.mutex("account/2")?);
    /// let both = client.all([from.for_lock(), to.for_lock()])?;
    /// let guards = both.lock().await?;
    /// println!("{} and {}", guards[0].token(), guards[1].token());
    /// guards.release().await?;
    ///
    /// let report = client.all([
    ///     client.rw_lock("catalog")?.for_read(),
    ///     client.rw_lock("index")?.for_write(),
    ///     client.semaphore("exports", 5)?.for_permits(2)?,
    ///     client.mutex("report")?.for_lock(),
    /// ])?;
    /// let Some(guards) = report.try_lock().await? else { return Ok(()) };
    /// guards.run(async { /* dropped when one of them is lost */ }).await?;
    /// # guards.release().await?;
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for no locks, for locks of another client, and for a lock that is to be held in two
    /// ways. The same lock twice counts once.
    pub fn all(&self, locks: impl IntoIterator<Item = LockRequest>) -> Result<LockSet> {
        LockSet::new(&self.driver, locks.into_iter().collect())
    }

    /// The election with this name, whose leader holds the lock with this name. Sends no request.
    ///
    /// # Errors
    ///
    /// As [`Client::mutex`].
    pub fn election(&self, name: impl AsRef<str>) -> Result<Election> {
        self.mutex(name).map(Election::new)
    }

    /// The job with this name, which runs once in each period, from 1 s to 365 days, under the lock with this name. Sends
    /// no request. See [`Job`].
    ///
    /// The library has no timer: each machine calls [`Job::run`] at the times of its own, and the job runs on one of them.
    /// The timers agree on the times, such as full hours. `tokio::time::interval` counts from the start of the program: one
    /// that starts at 12:40 would do the run of 13:00.
    ///
    /// A job has *slots*, a period apart, by the clock of the store. A start belongs to the slot whose time is nearest, so
    /// the starts for one run may differ by less than half a period, lateness and clocks included. The slots start with
    /// the request of the first completed run, unless [`Job::anchor`] sets their times. They are forgotten after two
    /// periods without a completed run. Two runs can be close: [`LeaseOptions::min_hold`] keeps a distance.
    ///
    /// ```
    /// # async fn clean_up() -> leasehold::Result<()> { Ok(()) }
    /// use std::time::{Duration, SystemTime, UNIX_EPOCH};
    /// use leasehold::{Client, ErrorKind};
    ///
    /// /// Cleans up at each full hour, on one of the machines that call this.
    /// async fn clean_up_hourly(client: &Client) -> leasehold::Result<()> {
    ///     let hour = Duration::from_secs(60 * 60);
    ///     let job = client.job("clean-up", hour)?.anchor(UNIX_EPOCH)?;
    ///     loop {
    ///         let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    ///         let passed = Duration::from_secs(now.as_secs() % hour.as_secs());
    ///         tokio::time::sleep(hour - passed).await;
    ///         match job.run(async |_run| clean_up().await).await {
    ///             Ok(_) => {} // done, here or elsewhere
    ///             Err(error) if error.kind() == ErrorKind::ShutDown => return Ok(()),
    ///             Err(error) => eprintln!("the run of this hour has failed: {error}"),
    ///         }
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Client::mutex`]; [`ErrorKind::InvalidConfig`] for another period, and [`ErrorKind::Unsupported`] over many
    /// masters, which keep no records of completed runs.
    pub fn job(&self, name: impl AsRef<str>, period: Duration) -> Result<Job> {
        Job::every(self.mutex(name)?, period)
    }

    /// The job that runs once for a key, such as a version: 1 to 256 bytes without control characters or outer spaces.
    /// Sends no request. See [`Job`].
    ///
    /// Its record is kept for 3,650 days, unless [`Job::keep`] sets another time; after that the key is run again.
    ///
    /// # Errors
    ///
    /// As [`Client::job`], and [`ErrorKind::InvalidName`] for an invalid key.
    pub fn once(&self, name: impl AsRef<str>, key: impl AsRef<str>) -> Result<Job> {
        Job::once(self.mutex(name)?, key.as_ref())
    }

    /// The latch with this name, which opens when `count` members have arrived: 1 to 10,000. Sends no request. See
    /// [`Latch`].
    ///
    /// # Errors
    ///
    /// As [`Client::mutex`], [`ErrorKind::InvalidConfig`] for another count, and [`ErrorKind::Unsupported`] over many
    /// masters, which keep no latches.
    pub fn latch(&self, name: impl AsRef<str>, count: u32) -> Result<Latch> {
        let key = self.space.key(config::name(name.as_ref())?);
        Latch::new(Arc::clone(&self.driver), key, count)
    }

    /// The last completed run of each job in this client's namespace and tenant, and of each key, sorted by name.
    /// A record that this version cannot read is not listed; a warning of `tracing` names it.
    ///
    /// # Errors
    ///
    /// As the store replies. [`ErrorKind::Unsupported`] over many masters.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    pub async fn completions(&self) -> Result<Vec<Completion>> {
        let records = self.completion_records().await?;
        Ok(records.into_iter().flatten().collect())
    }

    /// The same with the records that this version cannot read: an `Err` has the name and the key of such a record.
    ///
    /// # Errors
    ///
    /// As [`Client::completions`].
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    #[doc(hidden)]
    pub async fn completion_records(
        &self,
    ) -> Result<Vec<Result<Completion, (String, Option<String>)>>> {
        let store = &self.driver.context.store;
        let read = store.read(Query::Completions(self.space.clone())).await;
        let views = read.map_err(|error| error.at_store(store))?.views;
        let records = views.iter().filter_map(|view| {
            let name = &view.key.name;
            let (kind, read) = match (&view.unreadable, view.annotations.first()) {
                (Some(kind), _) => (kind, Err(CompletionError::Malformed)),
                (None, Some((kind, note))) => {
                    let read = CompletionRecord::parse(&note.text);
                    let info = |run| Completion::new(name, kind, note, &run);
                    (kind, read.map(info))
                }
                (None, None) => return None,
            };
            Some(read.map_err(|error| {
                report(|| {
                    let lock = name.as_str();
                    tracing::warn!(lock, %error, "the record of a completed run cannot be read");
                });
                (name.as_str().to_owned(), Completion::key_of(kind))
            }))
        });
        Ok(records.collect())
    }

    /// The locks that are held in this client's namespace and tenant, sorted by name, with their waiters. Locks in a
    /// minimum hold are among them.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// for lock in client.locks().await? {
    ///     let host = lock.client.map_or("unknown".to_owned(), |client| client.host);
    ///     println!("{} on {host}, {:?} left, {} waiters", lock.name, lock.time_left, lock.waiters.len());
    /// }
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As the store replies.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    pub async fn locks(&self) -> Result<Vec<LockInfo>> {
        let store = &self.driver.context.store;
        let read = store.read(Query::Names(self.space.clone())).await;
        let views = read.map_err(|error| error.at_store(store))?.views;
        Ok(views.into_iter().filter_map(LockInfo::held).collect())
    }

    /// Host, process id, program and label of a client, by the id that its leases have: see
    /// [`LeaseId`](crate::LeaseId). A client writes this info a moment after its first lease. The store keeps it for at
    /// least two minutes after the last one. `None`: the store does not have it.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let guard = client.mutex("orders/42")?.lock().await?;
    /// if let Some(info) = client.client_info(guard.lease_id().client).await? {
    ///     println!("{} on {}, process {}", info.program, info.host, info.pid);
    /// }
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As the store replies.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    pub async fn client_info(&self, id: ClientId) -> Result<Option<ClientInfo>> {
        let store = &self.driver.context.store;
        let read = store.read(Query::Client(self.space.clone(), id)).await;
        Ok(read.map_err(|error| error.at_store(store))?.client)
    }

    /// The id of this client, which all its leases have: those that it holds, and those with which it waits in
    /// [`LockInfo::waiters`]. Clones have the same id.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.driver.client
    }

    /// Waits until a node of the watchdog has accepted this client. Returns immediately for a client without a
    /// watchdog.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NoWatchdog`], with the reason, if no node has accepted it within `timeout`.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    #[cfg(feature = "watchdog")]
    #[doc(hidden)]
    pub async fn watched(&self, timeout: Duration) -> Result<()> {
        self.driver.watchdog.ready(timeout).await
    }

    /// The connections to the nodes of the watchdog, and their changes: whether a node watches the leases of this
    /// client, and why not.
    #[cfg(feature = "watchdog")]
    #[doc(hidden)]
    #[must_use]
    pub fn watchdog_status(&self) -> WatchdogStatus {
        self.driver.watchdog.status()
    }

    /// Lets the watchdog on this machine watch one more process: this client counts as dead only when all of them have
    /// ended. For a child process that works under a lock of this process and may outlive it. Returns whether the
    /// client has a watchdog.
    ///
    /// A node that already watches as many processes as it may forgets this client.
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

    /// This instant, by the clock that the states and deadlines of this client's guards have.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// use leasehold::State;
    ///
    /// let guard = client.mutex("orders/42")?.lock().await?;
    /// if let State::Held { until } = guard.state() {
    ///     println!("given up in {:?} unless renewed", client.now().until(until));
    /// }
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn now(&self) -> Instant {
        self.driver.context.clock.now()
    }

    /// The store, as its URL without a password.
    #[must_use]
    pub fn store(&self) -> &dyn fmt::Display {
        &self.driver.context.store
    }

    /// Releases every lease that is still held, in batches, ends all waits, and waits until the store has confirmed the
    /// releases, also those of guards that were dropped before or are being released. The guards read lost. No clone of
    /// this client can acquire a lock afterwards: present and later waiters get [`ErrorKind::ShutDown`]. The nodes of a
    /// watchdog forget the client. Returns the number of leases that were held and are released.
    ///
    /// [`Mutex::run`], [`Job::run`] and [`Guard::run`](crate::Guard::run) drop their work, and return [`ErrorKind::Lost`]. A
    /// service that lets its work end accepts no more work, releases its leaderships, waits for the work, and then shuts
    /// down.
    ///
    /// What a request without a reply acquires behind the shutdown expires by itself, and so does a lease that was lost before.
    ///
    /// Without a shutdown, dropped guards release in the background, and a program that returns from `main`
    /// waits up to two seconds for them, unless it has a client in a static, which is never dropped. A program that ends by
    /// [`std::process::exit`] or by a signal does not wait: its locks are free when their leases expire.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// use std::time::Duration;
    ///
    /// // At the end of a service, after SIGTERM.
    /// let released = client.shutdown(Duration::from_secs(5)).await?;
    /// println!("released {released} locks");
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unreachable`], with the names of the locks, if the store did not confirm all releases
    /// within `timeout`. They are repeated in the background while the runtime lives, and the leases expire.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the releases go on in the background.
    pub async fn shutdown(&self, timeout: Duration) -> Result<usize> {
        let released = shutdown::shut_down_within(&self.driver, timeout).await;
        released.ok_or_else(|| self.unreleased(timeout))
    }

    fn unreleased(&self, timeout: Duration) -> Error {
        let (unconfirmed, calls) = (
            self.driver.releases.unconfirmed(),
            self.driver.releases.calls(),
        );
        let names = unconfirmed
            .iter()
            .map(|release| release.key().name.to_string());
        let mut listed: Vec<_> = names.take(NAMES_LISTED).collect();
        let more = match unconfirmed.len() - listed.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        if calls > 0 {
            listed.insert(0, format!("those of {calls} unfinished calls"));
        }
        let message = format!(
            "{} of its locks could not be released within {timeout:?}: {}{more}; their leases end them",
            unconfirmed.len() + calls,
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
