//! The same locks for programs without an async runtime.
//!
//! A client owns a small runtime on threads of its own, so leases are renewed while the caller is busy.
//!
//! | call | from a thread |
//! |---|---|
//! | connect | [`Client::connect`], [`Client::connect_with`] |
//! | `lock` and its variants of a mutex; `release`, `ensure`, `lost` of a guard; `shutdown` | the method of the same name, without `.await` |
//! | methods that are not async, such as [`token`](crate::Guard::token) and [`state`](crate::Guard::state) | the method of the async type, which [`Client`], [`Mutex`] and [`Guard`] deref to |
//! | `run` and its variants of a mutex | `lock`, the work, `release` |
//! | every other async method: semaphores, read-write locks, sets of locks, jobs, elections, latches, [`inspect`](crate::Mutex::inspect), [`locks`](crate::Client::locks) | `client.block_on(mutex.inspect())` |
//!
//! A method whose future is not a `Result`, such as [`lost`](crate::Guard::lost) of a leadership, is called in a block:
//! `client.block_on(async { Ok::<_, Error>(leadership.lost().await) })`.
//!
//! Work on a thread cannot be dropped when its lease is lost: it checks [`state`](crate::Guard::state) or calls
//! [`Guard::ensure`] before each step that matters. A future under [`Client::block_on`] must not call blocking methods: for
//! a job whose work uses them, acquire a [`Run`](crate::Run) by `block_on(job.lock())`, and work outside of `block_on`.
//!
//! A signal such as Ctrl-C ends the process without a release, and its locks are free at the end of their leases: handle
//! it, or choose a short ttl.
//!
//! Each thread is an owner: it may enter a lock that it holds. A guard that is sent to another thread still belongs to
//! the first one.
//!
//! ```
//! use std::time::Duration;
//!
//! use leasehold::blocking::Client;
//! use leasehold::{Error, Ran};
//!
//! let client = Client::connect("memory:")?;
//! let mutex = client.mutex("orders/42")?;
//! let outer = mutex.lock()?;
//! let inner = mutex.lock()?; // the same thread enters again
//! assert_eq!(outer.token(), inner.token());
//! inner.release()?;
//! outer.release()?;
//!
//! let job = client.job("clean-up", Duration::from_secs(24 * 60 * 60))?;
//! match client.block_on(job.lock())? {
//!     Ran::Now(run) => {
//!         // ... the work, on this thread ...
//!         client.block_on(run.complete())?;
//!     }
//!     Ran::Before(completion) => println!("{} has done it", completion.host),
//!     Ran::Busy => {} // only of `try_lock` and `lock_timeout`: `lock` waits
//! }
//!
//! let leadership = client.block_on(client.election("scheduler")?.campaign("10.0.0.7:8080"))?;
//! client.block_on(leadership.release())?;
//!
//! let (from, to) = (client.mutex("account/1")?, client.mutex("account/2")?);
//! let both = client.all([from.for_lock(), to.for_lock()])?;
//! let guards = client.block_on(both.lock())?;
//! client.block_on(guards.ensure(Duration::from_secs(10)))?;
//! client.block_on(guards.release())?;
//!
//! let ready = client.latch("import/ready", 1)?;
//! client.block_on(ready.arrive())?;
//! assert!(client.block_on(ready.wait_timeout(Duration::from_secs(10)))?);
//! # Ok::<(), Error>(())
//! ```

mod runtime;

use std::ops::Deref;
use std::time::Duration;

use self::runtime::Threads;
#[cfg(doc)]
use crate::ErrorKind;
use crate::store::IntoStore;
use crate::{Cause, ClientBuilder, Error, LeaseOptions, Result};

/// A process's connection to a store. See [`crate::Client`].
///
/// When the last client, mutex or guard is dropped, it waits for up to two seconds until the store has confirmed all
/// releases: drop it outside of an async runtime, whose thread it would block. A program that ends by
/// [`std::process::exit`] does not wait.
#[derive(Clone, Debug)]
pub struct Client {
    threads: Threads,
    client: crate::Client,
}

impl Client {
    /// Connects with the default settings. See [`crate::Client::connect`].
    ///
    /// # Errors
    ///
    /// As [`Client::connect_with`].
    pub fn connect(store: impl IntoStore) -> Result<Self> {
        Self::connect_with(ClientBuilder::default(), store)
    }

    /// Connects with other settings. See [`ClientBuilder::connect`].
    ///
    /// ```
    /// use leasehold::blocking::Client;
    ///
    /// let settings = leasehold::Client::builder().namespace("billing").label("nightly run");
    /// let client = Client::connect_with(settings, "memory:")?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::connect`], [`ErrorKind::InvalidConfig`] inside an async runtime, and
    /// [`ErrorKind::Unsupported`] if no threads can be started.
    pub fn connect_with(settings: ClientBuilder, store: impl IntoStore) -> Result<Self> {
        let threads = Threads::start()?;
        let client = threads.block_on(settings.connect(store))?;
        threads.serve(&client);
        Ok(Self { threads, client })
    }

    /// Waits on this thread for a future of this library, or for one that awaits such futures. Locks that it acquires
    /// belong to this thread.
    ///
    /// When the last client, mutex and guard of this module is dropped, everything else that the client holds is released,
    /// and reads [`Lost`](crate::State::Lost): leaderships, runs, permits, readers, writers, sets and async guards. Keep the
    /// client as long as they are needed.
    ///
    /// ```
    /// use leasehold::blocking::Client;
    ///
    /// let client = Client::connect("memory:")?;
    /// let mutex = client.mutex("orders/42")?;
    /// let guard = mutex.lock()?;
    /// let info = client.block_on(mutex.inspect())?.expect("the lock is held");
    /// assert_eq!(info.token, Some(guard.token()));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the future; [`ErrorKind::InvalidConfig`] inside an async runtime, and [`ErrorKind::Unsupported`] in a fork
    /// of the process.
    pub fn block_on<T, E: From<Error>>(
        &self,
        future: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        self.threads.block_on(future)
    }

    /// The lock with this name. See [`crate::Client::mutex`].
    ///
    /// # Errors
    ///
    /// As [`crate::Client::mutex`].
    pub fn mutex(&self, name: impl AsRef<str>) -> Result<Mutex> {
        let (threads, mutex) = (self.threads.clone(), self.client.mutex(name)?);
        Ok(Mutex { threads, mutex })
    }

    /// Releases every lease that is still held, and ends all waits. See [`crate::Client::shutdown`].
    ///
    /// # Errors
    ///
    /// As [`crate::Client::shutdown`].
    pub fn shutdown(&self, timeout: Duration) -> Result<usize> {
        self.block_on(self.client.shutdown(timeout))
    }
}

impl Deref for Client {
    type Target = crate::Client;

    fn deref(&self) -> &crate::Client {
        &self.client
    }
}

/// A lock with a name. See [`crate::Mutex`]. Its owner is the thread that acquires it, unless
/// [`LeaseOptions::owner`] names another.
///
/// ```
/// use std::time::Duration;
/// use leasehold::blocking::Client;
///
/// let client = Client::connect("memory:")?;
/// let mutex = client.mutex("orders/42")?;
/// let guard = mutex.lock()?;
/// println!("fencing token {}", guard.token());
/// guard.release()?;
/// if let Some(guard) = mutex.lock_timeout(Duration::from_secs(3))? {
///     guard.ensure(Duration::from_secs(5))?; // at least five more seconds, or an error
///     guard.release()?;
/// }
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Mutex {
    threads: Threads,
    mutex: crate::Mutex,
}

impl Mutex {
    /// The same lock with other settings. See [`crate::Mutex::with`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::with`].
    pub fn with(&self, options: LeaseOptions) -> Result<Self> {
        let (threads, mutex) = (self.threads.clone(), self.mutex.with(options)?);
        Ok(Self { threads, mutex })
    }

    /// Acquires the lock, and waits without a limit. See [`crate::Mutex::lock`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::lock`], and inside an async runtime.
    pub fn lock(&self) -> Result<Guard> {
        let guard = self.threads.block_on(self.mutex.lock())?;
        Ok(self.guard(guard))
    }

    /// Acquires the lock if it is free. See [`crate::Mutex::try_lock`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::try_lock`], and inside an async runtime.
    pub fn try_lock(&self) -> Result<Option<Guard>> {
        let guard = self.threads.block_on(self.mutex.try_lock())?;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// Acquires the lock, and waits no longer than `timeout`. See [`crate::Mutex::lock_timeout`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::lock_timeout`], and inside an async runtime.
    pub fn lock_timeout(&self, timeout: Duration) -> Result<Option<Guard>> {
        let guard = self.threads.block_on(self.mutex.lock_timeout(timeout))?;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    fn guard(&self, guard: crate::Guard) -> Guard {
        let threads = self.threads.clone();
        Guard { guard, threads }
    }
}

impl Deref for Mutex {
    type Target = crate::Mutex;

    fn deref(&self) -> &crate::Mutex {
        &self.mutex
    }
}

/// A lock that is held. See [`crate::Guard`]. Dropping it releases the lock in the background.
#[derive(Debug)]
#[must_use = "bind it to `_guard`: `let _` drops it, which releases the lock"]
pub struct Guard {
    // Dropped first: the threads must exist for its release.
    guard: crate::Guard,
    threads: Threads,
}

impl Guard {
    /// Waits until the lease is lost, and returns the cause. See [`crate::Guard::lost`].
    ///
    /// # Errors
    ///
    /// Inside an async runtime.
    pub fn lost(&self) -> Result<Cause> {
        let lost = async { Ok(self.guard.lost().await) };
        self.threads.block_on(lost)
    }

    /// Makes sure that the lease lasts for at least `duration` more. See [`crate::Guard::ensure`].
    ///
    /// # Errors
    ///
    /// As [`crate::Guard::ensure`].
    pub fn ensure(&self, duration: Duration) -> Result<()> {
        self.threads.block_on(self.guard.ensure(duration))
    }

    /// Releases the lock and waits for the reply. See [`crate::Guard::release`].
    ///
    /// # Errors
    ///
    /// As [`crate::Guard::release`].
    pub fn release(self) -> Result<()> {
        let Self { guard, threads } = self;
        threads.block_on(guard.release())
    }
}

impl Deref for Guard {
    type Target = crate::Guard;

    fn deref(&self) -> &crate::Guard {
        &self.guard
    }
}
