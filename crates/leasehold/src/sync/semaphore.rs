//! The semaphore: holders share its permits.

use std::num::NonZeroU32;
use std::ops::Deref;
use std::time::Duration;

use leasehold_core::{Claim, Token};

use super::mutex::{LockRequest, Mutex, refused_without_limit};
use crate::driver::acquire::Wait;
use crate::store::{Feature, Parts};
use crate::{ErrorKind, Guard, LeaseOptions, Result, config};

/// A number of permits with a name, in the store of its client.
///
/// All semaphores of one name, namespace and tenant in one store share the permits, across processes. Each client gives the
/// number of permits, and all give the same one, unless [`set_permits`](Self::set_permits) has set it. Cheap to make and to
/// clone; making it sends no request.
///
/// A [`Permit`] is a lease: renewed until it is released, and free again at the end of its ttl if its process dies. Permits
/// are granted in the order of the requests. A request for many permits is not overtaken by one for few.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::time::Duration;
///
/// let client = leasehold::Client::connect("memory:").await?;
/// let exports = client.semaphore("exports", 5)?;
///
/// let permit = exports.acquire().await?; // waits; renewed until released or dropped
/// let Some(two) = exports.try_acquire_many(2).await? else { return Ok(()) };
/// assert_eq!(exports.available_permits().await?, 2);
/// two.release().await?;
/// permit.release().await?;
///
/// // `None`: no permit was free, now or for three seconds.
/// let first = exports.try_acquire().await?;
/// let second = exports.acquire_timeout(Duration::from_secs(3)).await?;
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
///
/// `client.mutex(name)` with the same name [describes](Mutex::inspect), [observes](Mutex::events) and
/// [revokes](Mutex::revoke) it.
///
/// Each acquisition is a lease of its own: an [`Owner`](crate::Owner) has no effect. A task that holds permits and waits for
/// more can wait for ever, as others may do the same: see [`Permit::resize`].
#[derive(Clone, Debug)]
pub struct Semaphore {
    mutex: Mutex,
    permits: NonZeroU32,
    numbered: bool,
}

/// How long the store keeps a number of permits that was set, after the last use of the semaphore.
const SETTING_RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);

impl Semaphore {
    pub(crate) fn new(mutex: Mutex, permits: u32) -> Result<Self> {
        let store = &mutex.driver.context.store;
        let checked = store.capabilities().kind.check(Feature::Semaphores, store);
        checked.map_err(|error| error.for_lock(&mutex.key.name))?;
        Ok(Self {
            permits: positive(&mutex, permits)?,
            mutex: mutex.without_owner(),
            numbered: false,
        })
    }

    /// The name of the semaphore.
    #[must_use]
    pub fn name(&self) -> &str {
        self.mutex.name()
    }

    /// The same semaphore whose leases get numbers: the smallest one from 0 on that no other lease has. With one permit for
    /// each lease, they are smaller than the number of permits.
    ///
    /// A number is a slot for work that is divided: a partition, a port, a directory. It is free again with its lease, so a
    /// late holder may still use it: [`Guard::token`] grows from each lease with a number to the next one.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let partitions = client.semaphore("partitions", 8)?.numbered();
    /// let first = partitions.acquire().await?;
    /// let second = partitions.acquire().await?;
    /// assert_eq!([first.number(), second.number()], [Some(0), Some(1)]);
    /// assert_eq!(second.floor(), Some(first.token())); // the smallest token in use
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn numbered(&self) -> Self {
        Self {
            numbered: true,
            ..self.clone()
        }
    }

    /// The same semaphore with other settings. See [`LeaseOptions`].
    ///
    /// # Errors
    ///
    /// As [`Mutex::with`].
    pub fn with(&self, options: LeaseOptions) -> Result<Self> {
        Ok(Self {
            mutex: self.mutex.with(options)?.without_owner(),
            ..self.clone()
        })
    }

    /// Acquires a permit, and waits for it without a limit.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`]; [`ErrorKind::Conflict`] if the name is used as another kind of lock, or if the semaphore has
    /// another number of permits.
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn acquire(&self) -> Result<Permit> {
        self.acquire_many(1).await
    }

    /// Acquires several permits in one lease, and waits for them without a limit.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); [`ErrorKind::Conflict`] for more permits than the semaphore has, and
    /// [`ErrorKind::InvalidConfig`] for zero.
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn acquire_many(&self, permits: u32) -> Result<Permit> {
        match self.permit(permits, Wait::Forever).await? {
            Some(permit) => Ok(permit),
            None => Err(self.mutex.name_error(refused_without_limit())),
        }
    }

    /// Acquires a permit if one is free. `None`: there is none, or others wait.
    ///
    /// # Errors
    ///
    /// As [`Mutex::try_lock`], and otherwise as [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn try_acquire(&self) -> Result<Option<Permit>> {
        self.permit(1, Wait::No).await
    }

    /// Acquires several permits in one lease if as many are free. `None`: there are fewer, or others wait.
    ///
    /// # Errors
    ///
    /// As [`Mutex::try_lock`], and otherwise as [`acquire_many`](Self::acquire_many).
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Option<Permit>> {
        self.permit(permits, Wait::No).await
    }

    /// Acquires a permit, and waits for it no longer than `timeout`. `None`: none was free in that time. With a timeout of
    /// zero it is [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock_timeout`], and otherwise as [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn acquire_timeout(&self, timeout: Duration) -> Result<Option<Permit>> {
        self.acquire_many_timeout(1, timeout).await
    }

    /// Acquires several permits in one lease, and waits for them no longer than `timeout`. `None`: as many were not free in
    /// that time.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock_timeout`], and otherwise as [`acquire_many`](Self::acquire_many).
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn acquire_many_timeout(
        &self,
        permits: u32,
        timeout: Duration,
    ) -> Result<Option<Permit>> {
        self.permit(permits, self.mutex.wait_for(timeout)).await
    }

    /// The request for several permits in one lease, for [`Client::all`](crate::Client::all).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for zero.
    pub fn for_permits(&self, permits: u32) -> Result<LockRequest> {
        Ok(LockRequest::new(&self.mutex, self.claim(permits)?))
    }

    /// Sets the number of permits, whatever number its clients have given. It counts immediately, and until 30 days after
    /// the last use of the semaphore. Fewer permits take nothing from a holder: permits are granted again when enough are
    /// free. Call it before programs with another number are deployed; those with the old number go on.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let exports = client.semaphore("exports", 5)?;
    /// exports.set_permits(8).await?; // by an operator, while clients run
    /// let seven = exports.acquire_many(7).await?;
    /// assert_eq!(exports.available_permits().await?, 1);
    /// # seven.release().await?;
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As the store replies; [`ErrorKind::Conflict`] if the name is used as another kind of lock, and
    /// [`ErrorKind::InvalidConfig`] for zero.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the number may or may not be set, now or later.
    pub async fn set_permits(&self, permits: u32) -> Result<()> {
        let Mutex { driver, key, .. } = &self.mutex;
        driver.check_open(key)?;
        let permits = positive(&self.mutex, permits)?;
        driver.set_limit(key, permits, SETTING_RETENTION).await
    }

    /// How many permits are free at this moment. Others may wait for them.
    ///
    /// # Errors
    ///
    /// As the store replies.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    pub async fn available_permits(&self) -> Result<u32> {
        let Mutex { driver, key, .. } = &self.mutex;
        let view = driver.context.store.view(key, Parts::Lease).await;
        let usage = view.map_err(|error| self.mutex.name_error(error))?.usage;
        let free = usage.map_or(u64::from(self.permits.get()), |usage| {
            usage.permits.saturating_sub(usage.used)
        });
        Ok(u32::try_from(free).unwrap_or(u32::MAX))
    }

    async fn permit(&self, permits: u32, wait: Wait) -> Result<Option<Permit>> {
        let claim = self.claim(permits)?;
        let guard = self.mutex.acquire(claim, wait).await?;
        Ok(guard.map(|guard| Permit {
            guard,
            semaphore: self.clone(),
            permits,
            resizing: None,
        }))
    }

    fn claim(&self, permits: u32) -> Result<Claim> {
        Ok(Claim::Permits {
            weight: positive(&self.mutex, permits)?,
            limit: self.permits,
            numbered: self.numbered,
        })
    }
}

/// Checks a number of permits.
fn positive(mutex: &Mutex, permits: u32) -> Result<NonZeroU32> {
    NonZeroU32::new(permits).ok_or_else(|| {
        let message = "a number of permits must be 1 or more";
        mutex.name_error(config::invalid(message))
    })
}

/// Permits of a [`Semaphore`] in one lease, until they are released, dropped or lost.
///
/// It derefs to [`Guard`]. Dropping it releases the permits in the background.
#[derive(Debug)]
#[must_use = "bind it to `_permit`: `let _` drops it, which releases the permits"]
pub struct Permit {
    guard: Guard,
    semaphore: Semaphore,
    permits: u32,
    /// The number that was asked for without a reply: only a repetition shows whether it has that.
    resizing: Option<u32>,
}

impl Permit {
    /// How many permits it has.
    #[must_use]
    pub const fn permits(&self) -> u32 {
        self.permits
    }

    /// Its number. `None`: the semaphore is not [numbered](Semaphore::numbered).
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        self.guard.numbering().number
    }

    /// The smallest [token](Guard::token) of all holders when it was granted. `None`: the semaphore is not
    /// [numbered](Semaphore::numbered).
    ///
    /// A resource that all holders use can refuse smaller tokens: their holders had lost their permits by then. Send it with
    /// the token, and let the resource keep the largest floor that it has seen.
    #[must_use]
    pub fn floor(&self) -> Option<Token> {
        self.guard.numbering().floor
    }

    /// Changes how many permits it has. Returns whether it did: fewer are given back immediately, and more are taken if
    /// they are free, whoever waits. It does not wait, since two holders that want more would wait for each other.
    ///
    /// With another number of permits it has a new [token](Guard::token).
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let memory = client.semaphore("memory-mib", 1_024)?;
    /// let mut permit = memory.acquire_many(512).await?;
    /// assert!(permit.resize(2_000).await.is_err()); // more than there are
    /// assert!(permit.resize(128).await?);
    /// assert_eq!(memory.available_permits().await?, 896);
    /// # permit.release().await?;
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire_many`], and [`ErrorKind::Lost`] if the lease was lost before. A transient error of the store
    /// is waited for until then.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it may have one number of permits or the other, and [`permits`](Self::permits) is the
    /// number before. The next call repeats the request first, and so finds out.
    pub async fn resize(&mut self, permits: u32) -> Result<bool> {
        if let Some(earlier) = self.resizing {
            let repeated = self.convert(earlier).await;
            if self.resizing.is_some() {
                return repeated;
            }
        }
        self.convert(permits).await
    }

    async fn convert(&mut self, permits: u32) -> Result<bool> {
        let claim = self.semaphore.claim(permits)?;
        self.resizing = Some(permits);
        let converted = self.guard.hold_mut().convert(claim, false).await;
        match &converted {
            Ok(true) => self.permits = permits,
            Ok(false) => {}
            // The store has refused it.
            Err(error) if error.kind() == ErrorKind::Conflict => {}
            Err(_) => return converted,
        }
        self.resizing = None;
        converted
    }

    /// Releases the permits and waits for the reply.
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

impl Deref for Permit {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}
