//! The mutex: it has at most one holder at a time.

mod request;
mod settings;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::acquisition::RunRequest;
use leasehold_core::{Claim, Instant, OwnerId, Slot};

pub use self::request::LockRequest;
use super::lock_events::LockEvents;
use crate::driver::acquire::{self, AcquireRequest, Acquired, Wait, reenter};
use crate::driver::context::AcquireOptions;
use crate::driver::hold::Hold;
use crate::driver::metrics::{AcquireFailure, WaiterMetric};
use crate::driver::{Driver, report};
use crate::store::{Key, Parts};
use crate::{Error, ErrorKind, Guard, LeaseOptions, LockInfo, Result, owner};

/// A lock with a name, in the store of its client.
///
/// Cheap to make and to clone; making it sends no request. All mutexes of one name, namespace and tenant in one store
/// exclude each other, across processes.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use leasehold::{Client, LeaseOptions};
///
/// let client = Client::connect("memory:").await?;
/// let mutex = client.mutex("orders/42")?;
///
/// let guard = mutex.lock().await?; // waits; renewed until released or dropped
/// println!("fencing token {}", guard.token());
/// guard.release().await?;
///
/// let Some(guard) = mutex.try_lock().await? else { return Ok(()) }; // a refusal is not an error
/// drop(guard); // releases in the background
///
/// let ten = LeaseOptions::new().fixed(Duration::from_secs(10)); // not renewed
/// let guard = mutex.with(ten)?.lock().await?;
/// # guard.release().await?;
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Mutex {
    pub(super) driver: Arc<Driver>,
    pub(super) key: Key,
    pub(super) options: AcquireOptions,
    pub(super) min_hold: Duration,
    owner: LockOwner,
}

/// The party that a mutex is acquired for.
#[derive(Clone, Copy, Debug)]
enum LockOwner {
    /// That of the scope around the call, if there is one.
    Current,
    Named(OwnerId),
    /// Nobody who could enter the lock again.
    Nobody,
}

impl Mutex {
    pub(crate) fn new(driver: Arc<Driver>, key: Key, options: AcquireOptions) -> Self {
        Self {
            driver,
            key,
            options,
            min_hold: Duration::ZERO,
            owner: LockOwner::Current,
        }
    }

    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &str {
        self.key.name.as_str()
    }

    /// The same lock with other settings. See [`LeaseOptions`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for a setting outside of its bounds, or one that does not agree with the others;
    /// [`ErrorKind::Unsupported`] for a durability if the store has no replicas.
    pub fn with(&self, options: LeaseOptions) -> Result<Self> {
        let changed = self.changed(options);
        changed.map_err(|error| error.for_lock(&self.key.name))
    }

    /// The request for this lock, for [`Client::all`](crate::Client::all).
    pub fn for_lock(&self) -> LockRequest {
        LockRequest::new(self, Claim::Mutex)
    }

    /// The events of this lock from now on: grants, releases, the length of its queue, leaders and completed runs of the
    /// periodic job.
    ///
    /// They are derived from readings of the store after each change, so leases that come and go between two readings
    /// are not among them.
    #[must_use]
    pub fn events(&self) -> LockEvents {
        LockEvents::new(&self.driver, &self.key, Slot::Period)
    }

    /// Acquires the lock, and waits for it without a limit.
    ///
    /// # Errors
    ///
    /// A [transient](Error::is_transient) error, such as [`ErrorKind::Unreachable`], is returned after the store has failed
    /// with it for a whole ttl; one that [names its end](Error::retry_after) is waited for. Any other error is returned
    /// immediately: [`ErrorKind::Unauthorized`], [`ErrorKind::Store`], [`ErrorKind::ShutDown`], and
    /// [`ErrorKind::NotReplicated`] if too few replicas acknowledged the grant, which is then released.
    ///
    /// # Cancel safety
    ///
    /// Dropped during the wait, the future holds nothing and has left the queue. A lock that was granted meanwhile is
    /// released in the background.
    pub async fn lock(&self) -> Result<Guard> {
        match self.acquire(Claim::Mutex, Wait::Forever).await? {
            Some(guard) => Ok(guard),
            // Only a caller that limits its waiting can be refused.
            None => Err(self.name_error(refused_without_limit())),
        }
    }

    /// The error of the store that delays the tasks of this client that wait for this lock. `None`: the last reply of the
    /// store was not an error, or no task waits.
    #[doc(hidden)]
    #[must_use]
    pub fn wait_status(&self) -> Option<WaitStatus> {
        let (error, gives_up_at) = self.driver.wait_status(&self.key)?;
        Some(WaitStatus { error, gives_up_at })
    }

    /// Acquires the lock if it is free. `None`: another client or task holds it or waits for it.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`], but a transient error is returned immediately, or after one retry if the store did not reply.
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        self.acquire(Claim::Mutex, Wait::No).await
    }

    /// Acquires the lock, and waits for it no longer than `timeout`. `None`: the lock was not free in that time.
    /// With a timeout of zero it is [`Mutex::try_lock`].
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`], and [`ErrorKind::Unreachable`] if the store did not reply in that time.
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn lock_timeout(&self, timeout: Duration) -> Result<Option<Guard>> {
        self.acquire(Claim::Mutex, self.wait_for(timeout)).await
    }

    /// Acquires the lock, and waits for it without a limit; does the work and releases the lock.
    ///
    /// The work is dropped at its next `.await` when the lease is lost. After a pause of the process, the
    /// lease is checked before the work goes on. A panic in the work releases the lock. Work that computes for long, or
    /// blocks its thread, delays the renewals: it belongs into `spawn_blocking`. The future is `Send` if the work is, so it
    /// can be spawned.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let report = client
    ///     .mutex("report")?
    ///     .run(async |guard| format!("written under token {}", guard.token()))
    ///     .await?;
    /// # assert!(report.starts_with("written"));
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// The work is an async closure, or an async function of a `&Guard`. A closure that returns an async block,
    ///
    /// ```compile_fail
    /// # async fn report(mutex: leasehold::Mutex) -> leasehold::Result<()> {
    /// mutex.run(|guard| async move { println!("{}", guard.token()) }).await
    /// # }
    /// ```
    ///
    /// does not compile: it cannot borrow the guard, and rustc asks for type annotations. Put `async` before the bars:
    ///
    /// ```
    /// # async fn report(mutex: leasehold::Mutex) -> leasehold::Result<()> {
    /// mutex.run(async |guard| println!("{}", guard.token())).await
    /// # }
    /// ```
    ///
    /// Work that can fail returns a `Result` inside that of the lock. Its last expression names the
    /// type of its error, and `??` passes both errors on:
    ///
    /// ```
    /// # use std::io;
    /// # async fn fetch() -> io::Result<String> { Ok("42".to_owned()) }
    /// # async fn job() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let orders = client.mutex("orders")?;
    /// let count = orders
    ///     .run(async |_guard| {
    ///         let text = fetch().await?;
    ///         Ok::<_, io::Error>(text.len())
    ///     })
    ///     .await??;
    /// # assert_eq!(count, 2);
    /// # Ok(()) }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(job()).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`], and [`ErrorKind::Lost`] if the lease was lost before the work had ended. A failed
    /// release is not an error here: the lease expires.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the work and releases the lock in the background.
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T> {
        run_and_release(self.lock().await?, work).await
    }

    /// Does the work if the lock is free, and releases the lock. `None`: the work was not started, because another client
    /// or task holds the lock or waits for it.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// # async fn clean_up() {}
    /// // The nightly job of many machines, on one of them.
    /// match client.mutex("clean-up")?.try_run(async |_guard| clean_up().await).await? {
    ///     Some(()) => println!("done"),
    ///     None => println!("another machine does it"),
    /// }
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Mutex::try_lock`], and otherwise as [`Mutex::run`].
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::run`].
    pub async fn try_run<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<Option<T>> {
        match self.try_lock().await? {
            Some(guard) => run_and_release(guard, work).await.map(Some),
            None => Ok(None),
        }
    }

    /// Acquires the lock, and waits for it no longer than `timeout`; does the work and releases the lock. `None`:
    /// the work was not started, because the lock was not free in that time. The work itself has no limit; see
    /// [`LeaseOptions::max_hold`].
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// use std::time::Duration;
    ///
    /// let mutex = client.mutex("orders/42")?;
    /// let limit = Duration::from_secs(3);
    /// let shipped = mutex.run_timeout(limit, async |guard| guard.token()).await?;
    /// assert!(shipped.is_some());
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock_timeout`], and otherwise as [`Mutex::run`].
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::run`].
    pub async fn run_timeout<T>(
        &self,
        timeout: Duration,
        work: impl AsyncFnOnce(&Guard) -> T,
    ) -> Result<Option<T>> {
        match self.lock_timeout(timeout).await? {
            Some(guard) => run_and_release(guard, work).await.map(Some),
            None => Ok(None),
        }
    }

    /// The holder of the lock at this moment, and the waiters in their order, whatever kind of lock has this
    /// name. During a minimum hold it is the last holder: see [`LockInfo::min_hold`]. `None`: the lock is free.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let mutex = client.mutex("orders/42")?;
    /// if let Some(lock) = mutex.inspect().await? {
    ///     let own = |waiter: &leasehold::WaiterInfo| waiter.lease.client == client.id();
    ///     if let Some(before) = lock.waiters.iter().position(own) {
    ///         println!("held by {:?}; {before} clients are served before this one", lock.client);
    ///     }
    /// }
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As the store replies. [`ErrorKind::NoQuorum`] if that depends on masters that did not reply.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    pub async fn inspect(&self) -> Result<Option<LockInfo>> {
        self.read(Parts::Waiters).await
    }

    /// The same without the waiters: its cost does not depend on the length of the queue.
    ///
    /// # Errors
    ///
    /// As [`Mutex::inspect`].
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    #[doc(hidden)]
    pub async fn holder(&self) -> Result<Option<LockInfo>> {
        self.read(Parts::Holder).await
    }

    async fn read(&self, parts: Parts) -> Result<Option<LockInfo>> {
        match self.driver.context.store.view(&self.key, parts).await {
            Ok(view) => Ok(LockInfo::held(view)),
            Err(error) => Err(self.name_error(error)),
        }
    }

    /// Revokes the leases of all clients that hold the lock, and returns the holder, or the first of them. Also ends a
    /// minimum hold. `None`: the lock was free.
    ///
    /// The holder is notified immediately if the store can push messages to it; otherwise its next renewal fails. Until
    /// then, only its fencing token protects the resource.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let mutex = client.mutex("orders/42")?;
    /// let guard = mutex.lock().await?;
    /// let holder = mutex.revoke().await?.expect("the lock was held");
    /// assert_eq!(holder.lease, guard.lease_id());
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As the store replies.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not have revoked the leases.
    pub async fn revoke(&self) -> Result<Option<LockInfo>> {
        // The leases can be revoked although the holder is not certain.
        let before = match self.inspect().await {
            Err(error) if error.kind() == ErrorKind::NoQuorum => None,
            found => found?,
        };
        let revoked = self.driver.revoke(&self.key).await?;
        let lease = revoked.first().copied();
        let known = before.filter(|info| revoked.contains(&info.lease));
        Ok(known.or_else(|| lease.map(|lease| LockInfo::of(self.name(), lease))))
    }

    /// Acquires the lock, or a part of it. `None`: it was not free, and the caller does not wait any longer.
    pub(super) async fn acquire(&self, claim: Claim, wait: Wait) -> Result<Option<Guard>> {
        match self.acquire_for(claim, None, wait).await? {
            Acquired::Held(hold, _) => Ok(Some(Guard::new(hold))),
            Acquired::Complete(_) | Acquired::Refused => Ok(None),
        }
    }

    /// Acquires the lock, or a part of it, unless the run of a job that it is for is complete.
    pub(super) async fn acquire_for(
        &self,
        claim: Claim,
        run: Option<Arc<RunRequest>>,
        wait: Wait,
    ) -> Result<Acquired> {
        let _waiter = (!matches!(wait, Wait::No)).then(WaiterMetric::begin);
        let request = self.request(claim, run, wait);
        // Pinned here, so that it is copied nowhere.
        let acquired = pin!(async {
            let owner = match self.owner {
                LockOwner::Current => owner::current(),
                LockOwner::Named(owner) => Some(owner),
                LockOwner::Nobody => None,
            };
            let acquired = match owner {
                Some(owner) => reenter::acquire(&self.driver, owner, &request).await?,
                None => acquire::acquire(&self.driver, &request).await?,
            };
            #[cfg(feature = "watchdog")]
            if let Acquired::Held(hold, _) = &acquired {
                self.watched(hold).await?;
            }
            Ok(acquired)
        });
        let acquired: Result<_> = acquired.await;
        match (&acquired, wait) {
            (Ok(Acquired::Held(hold, _)), _) => {
                let waited = self.driver.context.clock.now().since(request.since);
                report(|| metrics::histogram!("leasehold_acquire_wait_seconds").record(waited));
                self.begin_min_hold(hold);
            }
            (Ok(Acquired::Complete(_)), _) => {}
            (Ok(Acquired::Refused), Wait::No) => AcquireFailure::Refused.count(),
            (Ok(Acquired::Refused), _) => AcquireFailure::Timeout.count(),
            (Err(_), _) => AcquireFailure::Error.count(),
        }
        acquired
    }

    /// The request of a caller that begins to wait now.
    fn request(&self, claim: Claim, run: Option<Arc<RunRequest>>, wait: Wait) -> AcquireRequest {
        AcquireRequest {
            key: self.key.clone(),
            options: AcquireOptions {
                claim,
                run,
                ..self.options.clone()
            },
            wait,
            since: self.driver.context.clock.now(),
        }
    }

    /// Waits until a watchdog watches a lease that was granted, if one has to.
    #[cfg(feature = "watchdog")]
    pub(super) async fn watched(&self, hold: &Hold) -> Result<()> {
        let timeout = self.options.lease.policy.interval;
        let watched = self.driver.watchdog.watched(&hold.lease, timeout).await;
        watched.map_err(|error| self.name_error(error))
    }

    /// Begins the minimum hold of a lease that its caller gets now. A lease that no caller gets is released immediately.
    pub(super) fn begin_min_hold(&self, hold: &Hold) {
        if !self.min_hold.is_zero() {
            hold.require_min_hold(self.min_hold);
        }
    }

    /// A wait no longer than `timeout`. Zero: no wait.
    pub(super) fn wait_for(&self, timeout: Duration) -> Wait {
        match timeout.is_zero() {
            true => Wait::No,
            false => Wait::Until(self.driver.context.clock.now().after(timeout)),
        }
    }

    /// Names the lock and the store in an error.
    pub(super) fn name_error(&self, error: Error) -> Error {
        self.driver.context.name_error(error, &self.key)
    }
}

/// What delays a wait for a lock. Made by [`Mutex::wait_status`].
#[doc(hidden)]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WaitStatus {
    /// The last error of the store.
    pub error: Error,
    /// When the wait ends with an error, unless the store replies before: a ttl after the first request that failed.
    /// `None`: the wait goes on until the store accepts requests again. See [`Error::retry_after`].
    pub gives_up_at: Option<Instant>,
}

/// Only a caller that limits its waiting can be refused.
pub(super) fn refused_without_limit() -> Error {
    Error::new(ErrorKind::Store, "the lock was refused without a limit")
}

/// Does work under a lock and releases it.
async fn run_and_release<T>(guard: Guard, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T> {
    let outcome = guard.run(work(&guard)).await;
    if let Err(error) = guard.release().await {
        report(|| tracing::debug!(%error, "the lock could not be released after the work"));
    }
    outcome
}
