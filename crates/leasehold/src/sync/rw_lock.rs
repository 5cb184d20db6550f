//! The read-write lock: readers share it, or a writer has it alone.

use std::ops::Deref;
use std::time::Duration;

use leasehold_core::{Access, Claim};

use super::mutex::{LockRequest, Mutex, refused_without_limit};
#[cfg(doc)]
use crate::ErrorKind;
use crate::driver::acquire::Wait;
use crate::store::{Feature, unexpected};
use crate::{Guard, LeaseOptions, Result};

/// A read-write lock with a name, in the store of its client.
///
/// Readers hold it at the same time, and a writer holds it alone, across processes. It is fair: requests are served in their
/// order, and readers that come behind a waiting writer wait for it, so neither side starves. Cheap to make and to clone;
/// making it sends no request.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::time::Duration;
///
/// let client = leasehold::Client::connect("memory:").await?;
/// let catalog = client.rw_lock("catalog")?;
///
/// let first = catalog.read().await?;
/// let second = catalog.read().await?; // at the same time
/// assert!(catalog.try_write().await?.is_none());
/// first.release().await?;
/// second.release().await?;
///
/// let writer = catalog.write().await?; // alone
/// assert!(catalog.try_read().await?.is_none());
/// println!("fencing token {}", writer.token());
/// writer.release().await?;
///
/// // `None`: it was not free for three seconds.
/// let three = Duration::from_secs(3);
/// if let Some(reader) = catalog.read_timeout(three).await? {
///     reader.release().await?;
/// }
/// let writer = catalog.write_timeout(three).await?;
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
///
/// Readers of one client with the same [`LeaseOptions`] share a lease: for 20 ms after its grant, further readers join it
/// without a request, and it may stay for that long after the last of them. So a writer elsewhere waits at most 20 ms
/// longer than for the readers. Only their minimum holds may differ: the longest one counts. The readers between two
/// writers have the same [token](Guard::token), larger than that of the writer before them, and smaller than that of the
/// next one.
///
/// `client.mutex(name)` with the same name [describes](Mutex::inspect), [observes](Mutex::events) and
/// [revokes](Mutex::revoke) it.
///
/// An [`Owner`](crate::Owner) has no effect. A task that has a [`ReadGuard`] and waits for a [`WriteGuard`] waits for itself:
/// use [`upgradable_read`](Self::upgradable_read).
#[derive(Clone, Debug)]
pub struct RwLock {
    mutex: Mutex,
}

impl RwLock {
    pub(crate) fn new(mutex: Mutex) -> Result<Self> {
        let store = &mutex.driver.context.store;
        let checked = store.capabilities().kind.check(Feature::RwLocks, store);
        checked.map_err(|error| error.for_lock(&mutex.key.name))?;
        Ok(Self {
            mutex: mutex.without_owner(),
        })
    }

    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &str {
        self.mutex.name()
    }

    /// The same lock with other settings. See [`LeaseOptions`].
    ///
    /// # Errors
    ///
    /// As [`Mutex::with`].
    pub fn with(&self, options: LeaseOptions) -> Result<Self> {
        Ok(Self {
            mutex: self.mutex.with(options)?.without_owner(),
        })
    }

    /// Acquires the lock for reading, with other readers, and waits for it without a limit.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`], and [`ErrorKind::Conflict`] if the name is used as another kind of lock.
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn read(&self) -> Result<ReadGuard> {
        match self.mutex.acquire(READ, Wait::Forever).await? {
            Some(guard) => Ok(ReadGuard { guard }),
            None => Err(self.mutex.name_error(refused_without_limit())),
        }
    }

    /// Acquires the lock for reading, with other readers, if it is free for a reader. `None`: it is not, or others wait
    /// for it.
    ///
    /// # Errors
    ///
    /// As [`Mutex::try_lock`], and otherwise as [`read`](Self::read).
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn try_read(&self) -> Result<Option<ReadGuard>> {
        let guard = self.mutex.acquire(READ, Wait::No).await?;
        Ok(guard.map(|guard| ReadGuard { guard }))
    }

    /// Acquires the lock for reading, with other readers, and waits for it no longer than `timeout`. `None`: it was not free
    /// for a reader in that time. With a timeout of zero it is [`try_read`](Self::try_read).
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock_timeout`], and otherwise as [`read`](Self::read).
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn read_timeout(&self, timeout: Duration) -> Result<Option<ReadGuard>> {
        let wait = self.mutex.wait_for(timeout);
        let guard = self.mutex.acquire(READ, wait).await?;
        Ok(guard.map(|guard| ReadGuard { guard }))
    }

    /// Acquires the lock for writing, alone, and waits for it without a limit.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`], and [`ErrorKind::Conflict`] if the name is used as another kind of lock.
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn write(&self) -> Result<WriteGuard> {
        match self.mutex.acquire(WRITE, Wait::Forever).await? {
            Some(guard) => Ok(WriteGuard { guard }),
            None => Err(self.mutex.name_error(refused_without_limit())),
        }
    }

    /// Acquires the lock for writing, alone, if it is free for a writer. `None`: it is not, or others wait for it.
    ///
    /// # Errors
    ///
    /// As [`Mutex::try_lock`], and otherwise as [`write`](Self::write).
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn try_write(&self) -> Result<Option<WriteGuard>> {
        let guard = self.mutex.acquire(WRITE, Wait::No).await?;
        Ok(guard.map(|guard| WriteGuard { guard }))
    }

    /// Acquires the lock for writing, alone, and waits for it no longer than `timeout`. `None`: it was not free for a writer in that
    /// time. With a timeout of zero it is [`try_write`](Self::try_write).
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock_timeout`], and otherwise as [`write`](Self::write).
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn write_timeout(&self, timeout: Duration) -> Result<Option<WriteGuard>> {
        let wait = self.mutex.wait_for(timeout);
        let guard = self.mutex.acquire(WRITE, wait).await?;
        Ok(guard.map(|guard| WriteGuard { guard }))
    }

    /// Acquires the lock for reading, with other readers, as the one that may become the writer, and waits for it without
    /// a limit.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`], and [`ErrorKind::Conflict`] if the name is used as another kind of lock.
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn upgradable_read(&self) -> Result<UpgradableReadGuard> {
        match self.mutex.acquire(UPGRADABLE, Wait::Forever).await? {
            Some(guard) => Ok(UpgradableReadGuard { guard }),
            None => Err(self.mutex.name_error(refused_without_limit())),
        }
    }

    /// Acquires the lock for reading, with other readers, as the one that may become the writer, if it is free for such a
    /// reader. `None`: it is not, or others wait for it.
    ///
    /// # Errors
    ///
    /// As [`Mutex::try_lock`], and otherwise as [`upgradable_read`](Self::upgradable_read).
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn try_upgradable_read(&self) -> Result<Option<UpgradableReadGuard>> {
        let guard = self.mutex.acquire(UPGRADABLE, Wait::No).await?;
        Ok(guard.map(|guard| UpgradableReadGuard { guard }))
    }

    /// Acquires the lock for reading, with other readers, as the one that may become the writer, and waits for it no longer
    /// than `timeout`. `None`: it was not free for such a reader in that time. With a timeout of zero it is [`try_upgradable_read`](Self::try_upgradable_read).
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock_timeout`], and otherwise as [`upgradable_read`](Self::upgradable_read).
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn upgradable_read_timeout(
        &self,
        timeout: Duration,
    ) -> Result<Option<UpgradableReadGuard>> {
        let wait = self.mutex.wait_for(timeout);
        let guard = self.mutex.acquire(UPGRADABLE, wait).await?;
        Ok(guard.map(|guard| UpgradableReadGuard { guard }))
    }

    /// The request of a reader, for [`Client::all`](crate::Client::all).
    pub fn for_read(&self) -> LockRequest {
        LockRequest::new(&self.mutex, READ)
    }

    /// The request of a writer, for [`Client::all`](crate::Client::all).
    pub fn for_write(&self) -> LockRequest {
        LockRequest::new(&self.mutex, WRITE)
    }
}

/// A [`RwLock`] that is held for reading, until this is released, dropped or lost. It derefs to [`Guard`].
#[derive(Debug)]
#[must_use = "bind it to `_guard`: `let _` drops it, which releases the lock"]
pub struct ReadGuard {
    guard: Guard,
}

/// A [`RwLock`] that is held for reading by the one reader that may become the writer. It derefs to [`Guard`].
#[derive(Debug)]
#[must_use = "bind it to `_guard`: `let _` drops it, which releases the lock"]
pub struct UpgradableReadGuard {
    guard: Guard,
}

/// A [`RwLock`] that is held for writing, until this is released, dropped or lost. It derefs to [`Guard`].
#[derive(Debug)]
#[must_use = "bind it to `_guard`: `let _` drops it, which releases the lock"]
pub struct WriteGuard {
    guard: Guard,
}

impl ReadGuard {
    /// Releases the lock and waits for the reply. While other readers of this client share the lease, or for the time that
    /// it is kept for them, there is no request.
    ///
    /// # Errors
    ///
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::release`].
    pub async fn release(self) -> Result<()> {
        self.guard.release().await
    }
}

impl UpgradableReadGuard {
    /// Becomes the writer, before all that wait, as soon as the other readers have left. Readers that come meanwhile wait.
    ///
    /// The wait has no limit. Under `tokio::time::timeout` the lock is released at the limit, whereas
    /// [`try_upgrade`](Self::try_upgrade) returns the guard.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// # async fn is_stale() -> bool { true }
    /// # async fn rebuild(_: leasehold::Token) {}
    /// let index = client.rw_lock("index")?;
    /// let reader = index.upgradable_read().await?;
    /// if is_stale().await {
    ///     let writer = reader.upgrade().await?; // nobody has written in between
    ///     rebuild(writer.token()).await;
    ///     let reader = writer.downgrade_to_upgradable().await?; // nobody writes in between
    ///     match reader.try_upgrade().await? {
    ///         Ok(writer) => writer.downgrade().await?.release().await?, // there was no other reader
    ///         Err(reader) => reader.release().await?,
    ///     }
    /// }
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] if the lease was lost before, otherwise as the store replies. The lock is then released. A
    /// transient error is waited for until the lease is lost.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock is released in the background.
    pub async fn upgrade(self) -> Result<WriteGuard> {
        let guard = convert(self.guard, WRITE, true).await?;
        Ok(WriteGuard { guard })
    }

    /// Becomes the writer if there are no other readers. Otherwise it stays a reader: the inner error is this guard.
    ///
    /// # Errors
    ///
    /// As [`upgrade`](Self::upgrade).
    ///
    /// # Cancel safety
    ///
    /// As [`upgrade`](Self::upgrade).
    pub async fn try_upgrade(mut self) -> Result<Result<WriteGuard, Self>> {
        let is_writer = self.guard.hold_mut().convert(WRITE, false).await?;
        Ok(match is_writer {
            true => Ok(WriteGuard { guard: self.guard }),
            false => Err(self),
        })
    }

    /// Becomes a reader as the others, so that another reader may become the writer.
    ///
    /// # Errors
    ///
    /// As [`upgrade`](Self::upgrade).
    ///
    /// # Cancel safety
    ///
    /// As [`upgrade`](Self::upgrade).
    pub async fn downgrade(self) -> Result<ReadGuard> {
        let guard = convert(self.guard, READ, false).await?;
        Ok(ReadGuard { guard })
    }

    /// Releases the lock and waits for the reply.
    ///
    /// # Errors
    ///
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::release`].
    pub async fn release(self) -> Result<()> {
        self.guard.release().await
    }
}

impl WriteGuard {
    /// Becomes a reader. Readers that wait before the next writer come in at the same time, and nobody writes in between.
    ///
    /// # Errors
    ///
    /// As [`UpgradableReadGuard::upgrade`].
    ///
    /// # Cancel safety
    ///
    /// As [`UpgradableReadGuard::upgrade`].
    pub async fn downgrade(self) -> Result<ReadGuard> {
        let guard = convert(self.guard, READ, false).await?;
        Ok(ReadGuard { guard })
    }

    /// Becomes the reader that may become the writer again, otherwise as [`downgrade`](Self::downgrade).
    ///
    /// # Errors
    ///
    /// As [`UpgradableReadGuard::upgrade`].
    ///
    /// # Cancel safety
    ///
    /// As [`UpgradableReadGuard::upgrade`].
    pub async fn downgrade_to_upgradable(self) -> Result<UpgradableReadGuard> {
        let guard = convert(self.guard, UPGRADABLE, false).await?;
        Ok(UpgradableReadGuard { guard })
    }

    /// Releases the lock and waits for the reply.
    ///
    /// # Errors
    ///
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::release`].
    pub async fn release(self) -> Result<()> {
        self.guard.release().await
    }
}

const READ: Claim = Claim::Access(Access::Read);
const UPGRADABLE: Claim = Claim::Access(Access::Upgradable);
const WRITE: Claim = Claim::Access(Access::Write);

/// Converts what a guard holds, where that is only a matter of time.
async fn convert(mut guard: Guard, claim: Claim, wait: bool) -> Result<Guard> {
    match guard.hold_mut().convert(claim, wait).await? {
        true => Ok(guard),
        false => Err(guard.name_error(unexpected("a conversion was refused"))),
    }
}

impl Deref for ReadGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl Deref for UpgradableReadGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl Deref for WriteGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}
