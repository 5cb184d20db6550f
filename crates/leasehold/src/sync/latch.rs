//! A count-down latch: members arrive, and waiters go on when all have arrived.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::latch::{TTL_DEFAULT, TTL_MAX, TTL_MIN};
use leasehold_core::{ArrivalId, LatchCount, LatchStatus, Mismatch, Removal};

use crate::driver::Driver;
use crate::driver::read::Observer;
use crate::store::{Feature, Key, Parts, mismatch};
use crate::{Error, ErrorKind, Result, config};

/// A count-down latch with a name, in the store of its client.
///
/// It opens when as many members have arrived as its count says, and stays open until it expires or is reset. Each
/// arrival has an id, and an id counts once: repeating an arrival, such as one whose reply was lost, does not open the
/// latch too early. All members use the same count. Cheap to make and to clone; making it sends no request.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let client = leasehold::Client::connect("memory:").await?;
/// let ready = client.latch("import/ready", 2)?;
///
/// ready.arrive_as("tables").await?; // `arrive` counts this client
/// let waiting = tokio::spawn({
///     let ready = ready.clone();
///     async move { ready.wait().await } // from any process
/// });
/// assert_eq!(ready.status().await?.missing(), 1);
///
/// assert!(ready.arrive_as("indexes").await?.is_open());
/// waiting.await.expect("the task ends")?;
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
///
/// A store keeps a latch for 24 h after the last arrival that counted, or for another [`ttl`](Self::ttl). After that, or
/// after a [`reset`](Self::reset), the next arrival makes it anew. For a barrier that is used again and again, put the
/// number of the round into its name.
///
/// A latch counts arrivals, not living members: a member that dies before its arrival is missing until the latch is reset.
/// A group whose members may die needs a lock for each member, which ends with its holder. A name cannot be a latch and a
/// lock at the same time.
#[derive(Clone, Debug)]
pub struct Latch {
    driver: Arc<Driver>,
    key: Key,
    count: LatchCount,
    ttl: Duration,
}

impl Latch {
    pub(crate) fn new(driver: Arc<Driver>, key: Key, count: u32) -> Result<Self> {
        let store = &driver.context.store;
        let checked = store.capabilities().kind.check(Feature::Latches, store);
        checked.map_err(|error| error.for_lock(&key.name))?;
        let Some(count) = LatchCount::new(count) else {
            let message = format!(
                "the count of a latch must be from 1 to {}, not {count}",
                LatchCount::MAX
            );
            return Err(driver.context.name_error(config::invalid(message), &key));
        };
        Ok(Self {
            driver,
            key,
            count,
            ttl: TTL_DEFAULT,
        })
    }

    /// The name of the latch.
    #[must_use]
    pub fn name(&self) -> &str {
        self.key.name.as_str()
    }

    /// The same latch with another ttl: how long the store keeps it after an arrival of this client that counts, from 1 s
    /// to 365 days, 24 h if not set. Arrivals with a shorter ttl do not shorten a longer one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for a time outside these bounds.
    pub fn ttl(&self, ttl: Duration) -> Result<Self> {
        if !(TTL_MIN..=TTL_MAX).contains(&ttl) {
            let message = format!("the ttl of a latch must be from 1 s to 365 days, not {ttl:?}");
            return Err(self.name_error(config::invalid(message)));
        }
        Ok(Self {
            ttl,
            ..self.clone()
        })
    }

    /// Arrives under the id of this client: a process with one client counts once, however often it arrives.
    ///
    /// An arrival at an open latch changes nothing. If the store does not reply, the arrival may have counted; repeat it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if the latch was made with another count, or a lock with this name is held. Otherwise as
    /// the store replies.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the arrival may or may not count, now or later.
    pub async fn arrive(&self) -> Result<LatchStatus> {
        self.arrive_as(self.driver.client.to_string()).await
    }

    /// Arrives under an id: 1 to 256 bytes without control characters or outer spaces. See [`arrive`](Self::arrive).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`] for an invalid id, otherwise as [`arrive`](Self::arrive).
    ///
    /// # Cancel safety
    ///
    /// As [`arrive`](Self::arrive).
    pub async fn arrive_as(&self, id: impl AsRef<str>) -> Result<LatchStatus> {
        let id = ArrivalId::parse(id.as_ref()).map_err(|error| {
            let message = format!("the id of an arrival is invalid: {error}");
            self.name_error(Error::new(ErrorKind::InvalidName, message))
        })?;
        let arrived = self.driver.arrive(&self.key, id, self.count, self.ttl);
        arrived.await
    }

    /// Waits until the latch is open, without a limit. The latch need not exist yet.
    ///
    /// The store notifies waiters, where it can. The wait goes on while the store does not reply, and after the latch is
    /// reset or has expired. If a latch is reset before a waiter has read that it was open, the waiter misses that: reset
    /// a latch only when nobody waits for it.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status) except for transient errors, and [`ErrorKind::ShutDown`] after a shutdown of the
    /// client.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    pub async fn wait(&self) -> Result<()> {
        let driver = Arc::clone(&self.driver);
        let mut observer = Observer::new(driver, self.key.clone(), Parts::Latch);
        loop {
            let latch = observer.next().await?.latch;
            if self.checked(latch)?.is_open() {
                return Ok(());
            }
        }
    }

    /// Waits until the latch is open, no longer than `timeout`. Returns whether it is open. With a timeout of zero, it
    /// reads the latch once.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    pub async fn wait_timeout(&self, timeout: Duration) -> Result<bool> {
        if timeout.is_zero() {
            return Ok(self.status().await?.is_open());
        }
        let open = self.driver.within(timeout, self.wait()).await;
        open.map_or(Ok(false), |open| open.map(|()| true))
    }

    /// How many have arrived at this moment.
    ///
    /// # Errors
    ///
    /// As [`arrive`](Self::arrive).
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    pub async fn status(&self) -> Result<LatchStatus> {
        self.driver.check_open(&self.key)?;
        let store = &self.driver.context.store;
        let view = store.view(&self.key, Parts::Latch).await;
        let latch = view.map_err(|error| self.name_error(error))?.latch;
        self.checked(latch)
    }

    /// Removes the latch, with all arrivals. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if a lock with this name is held, otherwise as the store replies.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the latch may or may not be removed, now or later.
    pub async fn reset(&self) -> Result<bool> {
        self.driver.check_open(&self.key)?;
        self.driver.remove(&self.key, Removal::Latch).await
    }

    /// A latch without a record has no arrivals.
    fn checked(&self, latch: Option<LatchStatus>) -> Result<LatchStatus> {
        let Some(status) = latch else {
            return Ok(LatchStatus {
                arrived: 0,
                count: self.count.get(),
            });
        };
        let (stored, requested) = (status.count, self.count.get());
        match stored == requested {
            true => Ok(status),
            false => Err(self.name_error(mismatch(Mismatch::Count { stored, requested }))),
        }
    }

    fn name_error(&self, error: Error) -> Error {
        self.driver.context.name_error(error, &self.key)
    }
}
