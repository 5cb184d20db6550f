//! The same locks for programs without an async runtime.
//!
//! The names are those of the async API, and [`ClientBuilder::connect_blocking`] takes the same settings. A client
//! owns a small runtime on threads of its own, so leases are renewed while the caller is busy. Re-entry is by thread:
//! a thread that holds a lock may acquire it again; a guard that was sent to another thread still belongs to the
//! first.
//!
//! [`ClientBuilder::connect_blocking`]: crate::ClientBuilder::connect_blocking
//!
//! ```
//! use leasehold::blocking::Client;
//!
//! let client = Client::connect("memory:")?;
//! let mutex = client.mutex("orders/42")?;
//! let outer = mutex.lock()?;
//! let inner = mutex.lock()?; // the same thread enters again
//! assert_eq!(outer.token(), inner.token());
//! inner.release()?;
//! outer.release()?;
//! # Ok::<(), leasehold::Error>(())
//! ```

mod election;
mod job;
mod latch;
mod runtime;

use std::fmt;
use std::time::Duration;

pub use self::election::{Election, Leaders, Leadership};
pub use self::job::{Job, JobBuilder};
pub use self::latch::Latch;
use self::runtime::Threads;
use crate::{
    Cause, ClientBuilder, ClientId, ClientInfo, CompletionInfo, Durability, Error, Instant,
    LeaseId, LockInfo, Owner, Result, Shutdown, State, Token,
};

thread_local! {
    /// The owner that stands for this thread.
    static THREAD_OWNER: Owner = Owner::new();
}

/// A process's connection to a store. See [`crate::Client`].
#[derive(Clone, Debug)]
pub struct Client {
    threads: Threads,
    client: crate::Client,
}

impl Client {
    /// Connects with the default settings. See [`crate::Client::connect`]. For other settings see
    /// [`ClientBuilder::connect_blocking`].
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::connect_blocking`].
    pub fn connect(url: &str) -> Result<Self> {
        ClientBuilder::default().connect_blocking(url)
    }

    fn start(connecting: impl Future<Output = Result<crate::Client>>) -> Result<Self> {
        let threads = Threads::start()?;
        let client = threads.wait(connecting)?;
        threads.serve(&client);
        Ok(Self { threads, client })
    }

    /// The lock with this name. See [`crate::Client::mutex`].
    ///
    /// # Errors
    ///
    /// As [`crate::Client::mutex`].
    pub fn mutex(&self, name: impl AsRef<str>) -> Result<Mutex> {
        let mutex = self.client.mutex(name)?;
        Ok(Mutex::new(self.threads.clone(), mutex))
    }

    /// The job with this name. See [`crate::Client::job`].
    ///
    /// # Errors
    ///
    /// As [`crate::Client::job`].
    pub fn job(&self, name: impl AsRef<str>) -> Result<JobBuilder> {
        let builder = self.client.job(name)?;
        Ok(JobBuilder::new(self.threads.clone(), builder))
    }

    /// The latch with this name. See [`crate::Client::latch`].
    ///
    /// # Errors
    ///
    /// As [`crate::Client::latch`].
    pub fn latch(&self, name: impl AsRef<str>, count: u32) -> Result<Latch> {
        let latch = self.client.latch(name, count)?;
        Ok(Latch::new(self.threads.clone(), latch))
    }

    /// The job that runs once for a key. See [`crate::Client::once`].
    ///
    /// # Errors
    ///
    /// As [`crate::Client::once`].
    pub fn once(&self, name: impl AsRef<str>, key: impl AsRef<str>) -> Result<Job> {
        self.job(name)?.once(key)
    }

    /// The last completed runs of jobs. See [`crate::Client::completions`].
    ///
    /// # Errors
    ///
    /// As [`crate::Client::completions`].
    pub fn completions(&self) -> Result<Vec<CompletionInfo>> {
        self.threads.wait(self.client.completions())
    }

    /// The election with this name. See [`crate::Client::election`].
    ///
    /// # Errors
    ///
    /// As [`crate::Client::election`].
    pub fn election(&self, name: impl AsRef<str>) -> Result<Election> {
        let election = self.client.election(name)?;
        Ok(Election::new(self.threads.clone(), election))
    }

    /// The locks that are held. See [`crate::Client::locks`].
    ///
    /// # Errors
    ///
    /// As [`crate::Client::locks`].
    pub fn locks(&self) -> Result<Vec<LockInfo>> {
        self.threads.wait(self.client.locks())
    }

    /// The client info of a client by its id. See [`crate::Client::client_info`].
    ///
    /// # Errors
    ///
    /// As [`crate::Client::client_info`].
    pub fn client_info(&self, id: ClientId) -> Result<Option<ClientInfo>> {
        self.threads.wait(self.client.client_info(id))
    }

    /// The id of this client. See [`crate::Client::id`].
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.client.id()
    }

    /// The store, as its URL without a password.
    #[must_use]
    pub fn store(&self) -> &dyn fmt::Display {
        self.client.store()
    }

    /// Releases every lease that is still held. See [`crate::Client::shutdown`].
    ///
    /// When the last client, mutex or guard is dropped, it waits for up to two seconds until the store has
    /// confirmed all releases. A program that ends by [`std::process::exit`] does not.
    ///
    /// # Errors
    ///
    /// As [`crate::Client::shutdown`].
    pub fn shutdown(&self, timeout: Duration) -> Result<Shutdown> {
        self.threads.wait(self.client.shutdown(timeout))
    }
}

impl ClientBuilder {
    /// Opens the store that the URL names, for a program without an async runtime. See [`blocking`](self).
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::connect`], [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig) inside an async
    /// runtime, and [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if no threads can be started.
    pub fn connect_blocking(self, url: &str) -> Result<Client> {
        Client::start(self.connect(url))
    }

    /// Connects to a Redis server by the parts of its address. See [`ClientBuilder::connect_redis`].
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::connect_blocking`].
    #[cfg(feature = "redis")]
    pub fn connect_redis_blocking(self, address: &crate::RedisAddress) -> Result<Client> {
        Client::start(self.connect_redis(address))
    }
}

/// A lock with a name. See [`crate::Mutex`]; its owner is the thread that acquires it.
#[derive(Clone, Debug)]
pub struct Mutex {
    threads: Threads,
    mutex: crate::Mutex,
}

impl Mutex {
    fn new(threads: Threads, mutex: crate::Mutex) -> Self {
        Self { threads, mutex }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.mutex.name()
    }

    /// The same lock with another ttl. See [`crate::Mutex::ttl`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::ttl`].
    pub fn ttl(&self, ttl: Duration) -> Result<Self> {
        self.wrap(self.mutex.ttl(ttl))
    }

    /// The same lock with a longest hold. See [`crate::Mutex::max_hold`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::max_hold`].
    pub fn max_hold(&self, max_hold: Duration) -> Result<Self> {
        self.wrap(self.mutex.max_hold(max_hold))
    }

    /// The same lock with a minimum hold. See [`crate::Mutex::min_hold`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::min_hold`].
    pub fn min_hold(&self, min_hold: Duration) -> Result<Self> {
        self.wrap(self.mutex.min_hold(min_hold))
    }

    /// The same lock with a fixed lease. See [`crate::Mutex::lease`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::lease`].
    pub fn lease(&self, lease: Duration) -> Result<Self> {
        self.wrap(self.mutex.lease(lease))
    }

    /// The same lock with another durability. See [`crate::Mutex::durability`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::durability`].
    pub fn durability(&self, durability: Durability) -> Result<Self> {
        self.wrap(self.mutex.durability(durability))
    }

    /// Acquires the lock, and waits without a limit. See [`crate::Mutex::lock`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::lock`], and inside an async runtime.
    pub fn lock(&self) -> Result<Guard> {
        let guard = self.threads.wait(self.owned_by_thread().lock())?;
        Ok(Guard::new(self.threads.clone(), guard))
    }

    /// The last error of the store, if tasks wait for this lock. See [`crate::Mutex::last_error`].
    #[must_use]
    pub fn last_error(&self) -> Option<Error> {
        self.mutex.last_error()
    }

    /// When waiting tasks give up, if the store fails. See [`crate::Mutex::gives_up_at`].
    #[must_use]
    pub fn gives_up_at(&self) -> Option<Instant> {
        self.mutex.gives_up_at()
    }

    /// Acquires the lock if it is free. See [`crate::Mutex::try_lock`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::try_lock`], and inside an async runtime.
    pub fn try_lock(&self) -> Result<Option<Guard>> {
        let guard = self.threads.wait(self.owned_by_thread().try_lock())?;
        Ok(guard.map(|guard| Guard::new(self.threads.clone(), guard)))
    }

    /// Acquires the lock, and waits no longer than `timeout`. See [`crate::Mutex::lock_timeout`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::lock_timeout`], and inside an async runtime.
    pub fn lock_timeout(&self, timeout: Duration) -> Result<Option<Guard>> {
        let guard = self
            .threads
            .wait(self.owned_by_thread().lock_timeout(timeout))?;
        Ok(guard.map(|guard| Guard::new(self.threads.clone(), guard)))
    }

    /// Acquires the lock, does the work on this thread and releases the lock.
    ///
    /// Work on a thread cannot be dropped when the lease is lost: check [`Guard::state`] or call
    /// [`Guard::ensure`] before each step that matters.
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::run`]: [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the lease was lost
    /// before the work had ended, whose value is then dropped.
    pub fn run<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T> {
        self.lock()?.run_and_release(work)
    }

    /// Does the work on this thread if the lock is free, and releases the lock. `None`: the work was not begun. As
    /// with [`Mutex::run`], it is not interrupted when the lease is lost.
    ///
    /// # Errors
    ///
    /// As [`Mutex::try_lock`], and otherwise as [`Mutex::run`].
    pub fn try_run<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<Option<T>> {
        let guard = self.try_lock()?;
        guard.map(|guard| guard.run_and_release(work)).transpose()
    }

    /// Acquires the lock, and waits no longer than `timeout`; does the work on this thread and releases the lock.
    /// `None`: the work was not begun. As with [`Mutex::run`], it is not interrupted when the lease is lost.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock_timeout`], and otherwise as [`Mutex::run`].
    pub fn run_timeout<T>(
        &self,
        timeout: Duration,
        work: impl FnOnce(&Guard) -> T,
    ) -> Result<Option<T>> {
        let guard = self.lock_timeout(timeout)?;
        guard.map(|guard| guard.run_and_release(work)).transpose()
    }

    /// A job that runs under this lock, with its settings. See [`crate::Mutex::job`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::job`].
    pub fn job(&self) -> Result<JobBuilder> {
        Ok(JobBuilder::new(self.threads.clone(), self.mutex.job()?))
    }

    /// Whether the lock is held at this moment. See [`crate::Mutex::is_locked`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::is_locked`].
    pub fn is_locked(&self) -> Result<bool> {
        self.threads.wait(self.mutex.is_locked())
    }

    /// The time until the lease of the holder expires. See [`crate::Mutex::time_left`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::time_left`].
    pub fn time_left(&self) -> Result<Option<Duration>> {
        self.threads.wait(self.mutex.time_left())
    }

    /// The holder of the lock at this moment. See [`crate::Mutex::holder`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::holder`].
    pub fn holder(&self) -> Result<Option<LockInfo>> {
        self.threads.wait(self.mutex.holder())
    }

    /// The holder of the lock at this moment, and the waiters. See [`crate::Mutex::inspect`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::inspect`].
    pub fn inspect(&self) -> Result<Option<LockInfo>> {
        self.threads.wait(self.mutex.inspect())
    }

    /// Frees the lock, whichever client holds it. See [`crate::Mutex::force_release`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::force_release`].
    pub fn force_release(&self) -> Result<Option<LockInfo>> {
        self.threads.wait(self.mutex.force_release())
    }

    fn wrap(&self, mutex: Result<crate::Mutex>) -> Result<Self> {
        Ok(Self::new(self.threads.clone(), mutex?))
    }

    fn owned_by_thread(&self) -> crate::Mutex {
        THREAD_OWNER.with(|owner| self.mutex.owned_by(owner))
    }
}

/// A lock that is held. See [`crate::Guard`].
#[derive(Debug)]
#[must_use = "bind it to `_guard`: `let _` drops it, which releases the lock"]
pub struct Guard {
    // Dropped first: the threads must exist for its release.
    guard: crate::Guard,
    threads: Threads,
}

impl Guard {
    fn new(threads: Threads, guard: crate::Guard) -> Self {
        Self { guard, threads }
    }

    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &str {
        self.guard.name()
    }

    /// The fencing token. See [`crate::Guard::token`].
    #[must_use]
    pub fn token(&self) -> Token {
        self.guard.token()
    }

    /// The id of the lease. See [`crate::Guard::lease_id`].
    #[must_use]
    pub fn lease_id(&self) -> LeaseId {
        self.guard.lease_id()
    }

    /// Until when the store certainly keeps the lease. See [`crate::Guard::deadline`].
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.guard.deadline()
    }

    /// The time until [`Guard::deadline`].
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.guard.time_left()
    }

    /// What the lease is worth at this instant. See [`crate::Guard::state`].
    #[must_use]
    pub fn state(&self) -> State {
        self.guard.state()
    }

    /// Waits until the lease is lost, and returns the cause. See [`crate::Guard::lost`].
    ///
    /// # Errors
    ///
    /// Inside an async runtime.
    pub fn lost(&self) -> Result<Cause> {
        self.threads.wait(async { Ok(self.guard.lost().await) })
    }

    /// Makes sure that the lease lasts for at least `duration` more. See [`crate::Guard::ensure`].
    ///
    /// # Errors
    ///
    /// As [`crate::Guard::ensure`].
    pub fn ensure(&self, duration: Duration) -> Result<()> {
        self.threads.wait(self.guard.ensure(duration))
    }

    /// As [`Guard::waive_min_hold`](crate::Guard::waive_min_hold).
    pub fn waive_min_hold(&self) {
        self.guard.waive_min_hold();
    }

    /// Releases the lock and waits for the reply. See [`crate::Guard::release`].
    ///
    /// # Errors
    ///
    /// As [`crate::Guard::release`].
    pub fn release(self) -> Result<()> {
        let Self { guard, threads } = self;
        threads.wait(guard.release())
    }

    fn run_and_release<T>(self, work: impl FnOnce(&Self) -> T) -> Result<T> {
        let value = work(&self);
        self.check_held()?;
        if let Err(error) = self.release() {
            tracing::debug!(%error, "the lock could not be released after the work");
        }
        Ok(value)
    }

    fn check_held(&self) -> Result<()> {
        match self.guard.state() {
            State::Lost(cause) => Err(self.guard.lost_error(cause)),
            _ => Ok(()),
        }
    }
}
