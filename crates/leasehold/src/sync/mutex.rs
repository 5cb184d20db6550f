//! The mutex: at most one holder relies on it at a time.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold_core::{Cause, LeaseOptions, Op, Outcome, OwnerId, Policy, State, StateKind};

use crate::driver::acquire::{self, AcquireOptions, AcquireRequest, Wait, reenter};
use crate::driver::{Driver, report};
use crate::store::{Key, Reply, Request, not_replicated};
use crate::{Durability, Error, ErrorKind, Guard, LockInfo, Owner, Result, config, owner};

/// A lock with a name, in the store of its client.
///
/// Cheap to make and to clone; making it asks no store. All mutexes of one name in one store
/// exclude each other, in whatever process they are.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::time::Duration;
///
/// let client = leasehold::Client::connect("memory:").await?;
/// let mutex = client.mutex("orders/42")?;
///
/// let guard = mutex.lock().await?; // waits; renewed until released or dropped
/// println!("fencing token {}", guard.token());
/// guard.release().await?;
///
/// let Some(guard) = mutex.try_lock().await? else { return Ok(()) }; // refusal is no error
/// drop(guard); // releases in the background
///
/// let guard = mutex.lease(Duration::from_secs(10))?.lock().await?; // ten seconds, not renewed
/// # guard.release().await?;
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Mutex {
    driver: Arc<Driver>,
    key: Key,
    options: AcquireOptions,
    owner: Option<OwnerId>,
}

impl Mutex {
    pub(crate) fn new(
        driver: Arc<Driver>,
        key: Key,
        policy: Policy,
        durability: Durability,
    ) -> Self {
        Self {
            driver,
            key,
            options: AcquireOptions {
                lease: LeaseOptions {
                    policy,
                    fixed: None,
                },
                durability,
            },
            owner: None,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.key.name.as_str()
    }

    /// The same lock with another ttl for its renewed leases, from 100 ms to 24 h.
    ///
    /// A lease is renewed every third of its ttl, and given up when a third of it is left, whatever
    /// the client does otherwise.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for a ttl outside these bounds, or longer than the longest hold.
    pub fn ttl(&self, ttl: Duration) -> Result<Self> {
        let ttl = config::ttl("ttl", ttl).map_err(|error| error.for_lock(&self.key.name))?;
        self.renewed_by(Policy {
            max_hold: self.options.lease.policy.max_hold,
            ..Policy::of(ttl)
        })
    }

    /// The same lock with a longest hold: after this time the lease is not renewed any more, so that a
    /// holder that hangs does not keep it for ever. It is in jeopardy then, and lost when its ttl has
    /// run out but for the margin.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] if it is shorter than the ttl.
    pub fn max_hold(&self, max_hold: Duration) -> Result<Self> {
        self.renewed_by(Policy {
            max_hold: Some(max_hold),
            ..self.options.lease.policy
        })
    }

    fn renewed_by(&self, policy: Policy) -> Result<Self> {
        let checked = policy.check();
        checked.map_err(|error| config::invalid(error.to_string()).for_lock(&self.key.name))?;
        config::check_durability(self.options.durability, &policy)
            .map_err(|error| error.for_lock(&self.key.name))?;
        Ok(self.with_lease(LeaseOptions {
            policy,
            fixed: None,
        }))
    }

    /// The same lock with a fixed lease, from 100 ms to 24 h: it is never renewed, and lost when it
    /// ends.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for a lease outside these bounds.
    pub fn lease(&self, lease: Duration) -> Result<Self> {
        let ttl = config::ttl("lease", lease).map_err(|error| error.for_lock(&self.key.name))?;
        Ok(self.with_lease(LeaseOptions {
            fixed: Some(ttl),
            ..self.options.lease
        }))
    }

    fn with_lease(&self, lease: LeaseOptions) -> Self {
        Self {
            options: AcquireOptions {
                lease,
                ..self.options
            },
            ..self.clone()
        }
    }

    /// The same lock with another durability: who must have its grant, and each renewal, before they
    /// count.
    ///
    /// An owner who enters a lease again with a stricter one makes the whole lease so.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if the store has no replicas, [`ErrorKind::InvalidConfig`] for a
    /// timeout of zero, or one that leaves no time for a renewal to fail.
    pub fn durability(&self, durability: Durability) -> Result<Self> {
        let name = |error: Error| error.for_lock(&self.key.name);
        let store = &self.driver.context.store;
        if durability.is_replicated() && !store.has_replicas() {
            return Err(name(not_replicated(store)));
        }
        config::check_durability(durability, &self.options.lease.policy).map_err(name)?;
        Ok(Self {
            options: AcquireOptions {
                durability,
                ..self.options
            },
            ..self.clone()
        })
    }

    /// The same lock for an owner, who may enter it again. See [`Owner`].
    #[must_use]
    pub fn owned_by(&self, owner: &Owner) -> Self {
        Self {
            owner: Some(owner.id()),
            ..self.clone()
        }
    }

    /// Takes the lock; waits for it as long as it takes.
    ///
    /// # Errors
    ///
    /// A [transient](Error::is_transient) one, such as [`ErrorKind::Unreachable`], if the store has
    /// failed so for a whole ttl, but for one that says [how long it lasts](Error::retry_after), which is
    /// waited for; at once what else the store answers: [`ErrorKind::Unauthorized`],
    /// [`ErrorKind::Store`], and [`ErrorKind::NotReplicated`] if too few replicas acknowledged: the
    /// lock is given back then.
    ///
    /// # Cancel safety
    ///
    /// Dropped while it waits, it holds nothing and has lost its place; what was already asked for
    /// is released in the background.
    pub async fn lock(&self) -> Result<Guard> {
        match self.acquire(Wait::Forever).await? {
            Some(guard) => Ok(guard),
            // Only who limits the waiting can be refused.
            None => Err(self.error(ErrorKind::Store, "the lock was refused without a limit")),
        }
    }

    /// The error because of which the tasks of this client that wait for this lock do not get it: what
    /// the store answered last, if that was an error. `None` also if none waits.
    #[must_use]
    pub fn last_error(&self) -> Option<Error> {
        self.driver.last_error(&self.key)
    }

    /// Takes the lock if it is free. `None`: another holds it, or waited for it before.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`], but a transient one at once, or after the second try if nobody answered.
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        self.acquire(Wait::No).await
    }

    /// Takes the lock; waits for it no longer than `timeout`. `None`: another held it all the time.
    /// With a timeout of zero it is [`Mutex::try_lock`].
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`]; [`ErrorKind::Unreachable`] also if the store did not answer in that time.
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn lock_timeout(&self, timeout: Duration) -> Result<Option<Guard>> {
        if timeout.is_zero() {
            return self.try_lock().await;
        }
        let end = self.driver.context.clock.now().after(timeout);
        self.acquire(Wait::Until(end)).await
    }

    /// Takes the lock, does the work and releases the lock.
    ///
    /// The work is dropped, at its next `.await`, when the lease is lost; after a pause of the process
    /// that is looked at first, before the work goes on. A panic in the work releases the lock.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let report = client
    ///     .mutex("report")?
    ///     .run(async |lease| format!("written under token {}", lease.token()))
    ///     .await?;
    /// # assert!(report.starts_with("written"));
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`], and [`ErrorKind::Lost`] if the lease was lost before the work had ended.
    /// That the lock could not be released afterwards is no error: its lease ends it.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the work and releases the lock in the background.
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T> {
        let guard = self.lock().await?;
        let outcome = {
            let mut work = pin!(work(&guard));
            let mut lost = pin!(guard.lost());
            std::future::poll_fn(|context| {
                // Look before every step: after a pause the lease may be over.
                let state = guard.state();
                if let State::Lost(cause) = state {
                    return Poll::Ready(Err(cause));
                }
                if let Poll::Ready(cause) = lost.as_mut().poll(context) {
                    return Poll::Ready(Err(cause));
                }
                // Or only the store knows. What is waited for here tells of its answer.
                if state.kind() == StateKind::Jeopardy(Cause::Paused) {
                    return Poll::Pending;
                }
                let Poll::Ready(value) = work.as_mut().poll(context) else {
                    return Poll::Pending;
                };
                Poll::Ready(match guard.state() {
                    State::Lost(cause) => Err(cause),
                    _ => Ok(value),
                })
            })
            .await
        };
        let outcome = outcome.map_err(|cause| guard.lost_error(cause));
        if let Err(error) = guard.release().await {
            report(|| tracing::debug!(%error, "after the work"));
        }
        outcome
    }

    /// Whether anybody holds it at this moment. It may have changed before you read the answer.
    ///
    /// # Errors
    ///
    /// As the store's answer says.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    pub async fn is_locked(&self) -> Result<bool> {
        Ok(self.holder().await?.is_some())
    }

    /// How long its holder has it unless it renews or releases. `None`: it is free.
    ///
    /// # Errors
    ///
    /// As the store's answer says.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    pub async fn time_left(&self) -> Result<Option<Duration>> {
        Ok(self.holder().await?.map(|info| info.time_left))
    }

    /// Who holds it at this moment. `None`: it is free.
    ///
    /// # Errors
    ///
    /// As the store's answer says. [`ErrorKind::NoQuorum`] where that depends on masters that did not answer.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    pub async fn holder(&self) -> Result<Option<LockInfo>> {
        match self.driver.context.store.inspect(&self.key).await {
            Ok(entry) => Ok(entry.map(LockInfo::from)),
            Err(error) => Err(self.driver.context.name_error(error, &self.key)),
        }
    }

    /// Frees the lock whoever holds it, and says whom that cut off. `None`: it was free.
    ///
    /// The holder learns of it at its next renewal. Only its fencing token keeps it from doing harm
    /// until then.
    ///
    /// # Errors
    ///
    /// As the store's answer says.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not have freed the lock.
    pub async fn force_release(&self) -> Result<Option<LockInfo>> {
        // It can be freed although it is not sure who holds it.
        let before = match self.holder().await {
            Err(error) if error.kind() == ErrorKind::NoQuorum => None,
            found => found?,
        };
        let request = Request {
            key: self.key.clone(),
            op: Op::Revoke,
            durability: Durability::None,
        };
        match self.driver.batcher.submit(request).await {
            Reply::Applied {
                outcome: Outcome::Revoked { cut_off },
                ..
            } => {
                let known = before.filter(|info| Some(info.lease) == cut_off);
                Ok(known.or_else(|| cut_off.map(|lease| LockInfo::of(self.name(), lease))))
            }
            Reply::Applied { .. } => Err(self.error(ErrorKind::Store, "the lock was not freed")),
            Reply::Rejected(error) | Reply::Unknown(error) => {
                Err(self.driver.context.name_error(error, &self.key))
            }
        }
    }

    #[cfg(feature = "__bench")]
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    async fn acquire(&self, wait: Wait) -> Result<Option<Guard>> {
        let request = AcquireRequest {
            key: self.key.clone(),
            options: self.options,
            wait,
        };
        let begun = self.driver.context.clock.now();
        let hold = match self.owner.or_else(owner::current) {
            Some(owner) => reenter::acquire(&self.driver, owner, &request).await?,
            None => acquire::acquire(&self.driver, &request).await?,
        };
        let Some(hold) = hold else {
            return Ok(None);
        };
        #[cfg(feature = "watchdog")]
        {
            let timeout = self.options.lease.policy.interval;
            let watched = self.driver.watchdog.watched(&hold.lease, timeout).await;
            watched.map_err(|error| self.driver.context.name_error(error, &self.key))?;
        }
        let waited = self.driver.context.clock.now().since(begun);
        report(|| metrics::histogram!("leasehold_acquire_wait_seconds").record(waited));
        Ok(Some(Guard::new(hold)))
    }

    fn error(&self, kind: ErrorKind, message: &str) -> Error {
        self.driver
            .context
            .name_error(Error::new(kind, message), &self.key)
    }
}
