//! The settings of a mutex.

use std::time::Duration;

use leasehold_core::{LeaseOptions, Policy};

use super::{LockOwner, Mutex};
use crate::driver::context::AcquireOptions;
use crate::store::Feature;
use crate::{Durability, Error, Owner, Result, config};
#[cfg(doc)]
use crate::{ErrorKind, LockInfo};

impl Mutex {
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

    /// The same lock with a longest hold: after this time the lease is not renewed any more, so that a holder
    /// that hangs does not keep the lock for ever. The lease is in jeopardy then, and lost a margin before it
    /// expires.
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

    /// The same lock with a minimum hold, up to 24 h: a release ends the lease, and the lock stays taken until this time
    /// has passed since it was acquired. So a job that is started on several machines, and ends soon, is not run again
    /// by a machine whose clock is a little behind.
    ///
    /// Others are refused, or wait, as during a lease, and [`LockInfo::min_hold`] is true. A forced release ends the
    /// minimum hold. Only a release begins it: if the process dies or the lease is lost, the lock is free at the end
    /// of the lease. Zero, the default, is none.
    ///
    /// An owner that enters a lease again can only make its minimum hold end later. A lease is not handed off to another
    /// task of this client before the end of its minimum hold.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use std::time::Duration;
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let clean_up = client.mutex("clean-up")?.min_hold(Duration::from_secs(60))?;
    /// assert_eq!(clean_up.try_run(async |_lease| "done").await?, Some("done"));
    /// // The other machines come a second later.
    /// assert_eq!(clean_up.try_run(async |_lease| "done").await?, None);
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for more than 24 h, or than the longest ttl of a store over many masters.
    pub fn min_hold(&self, min_hold: Duration) -> Result<Self> {
        let store = &self.driver.context.store;
        let checked = config::min_hold(min_hold, store.capabilities().longest_ttl);
        let min_hold = checked.map_err(|error| error.for_lock(&self.key.name).at_store(store))?;
        Ok(Self {
            min_hold,
            ..self.clone()
        })
    }

    fn renewed_by(&self, policy: Policy) -> Result<Self> {
        let checked = policy.check();
        checked.map_err(|error| config::invalid(error.to_string()).for_lock(&self.key.name))?;
        config::check_durability(self.options.durability, &policy)
            .map_err(|error| error.for_lock(&self.key.name))?;
        let fixed = None;
        Ok(self.with_options(LeaseOptions { policy, fixed }, self.options.durability))
    }

    /// The same lock with a fixed lease, from 100 ms to 24 h: it is never renewed, and lost when it expires.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for a lease outside these bounds.
    pub fn lease(&self, lease: Duration) -> Result<Self> {
        let ttl = config::ttl("lease", lease).map_err(|error| error.for_lock(&self.key.name))?;
        let policy = self.options.lease.policy;
        let fixed = Some(ttl);
        Ok(self.with_options(LeaseOptions { policy, fixed }, self.options.durability))
    }

    fn with_options(&self, lease: LeaseOptions, durability: Durability) -> Self {
        Self {
            options: AcquireOptions {
                lease,
                durability,
                run: None,
            },
            ..self.clone()
        }
    }

    /// The same lock with another durability: the replicas that must acknowledge its grant and each renewal
    /// before they take effect.
    ///
    /// An owner that enters a lease again with a stricter durability makes it that of the whole lease.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if the store has no replicas, [`ErrorKind::InvalidConfig`] for a
    /// timeout of zero, or one that leaves no time for a renewal to fail.
    pub fn durability(&self, durability: Durability) -> Result<Self> {
        let name = |error: Error| error.for_lock(&self.key.name);
        let store = &self.driver.context.store;
        if durability.is_replicated() {
            let kind = store.capabilities().kind;
            kind.check(Feature::Replicas, store).map_err(name)?;
        }
        config::check_durability(durability, &self.options.lease.policy).map_err(name)?;
        Ok(self.with_options(self.options.lease, durability))
    }

    /// The same lock for an owner, which can enter it again. See [`Owner`].
    #[must_use]
    pub fn owned_by(&self, owner: &Owner) -> Self {
        Self {
            owner: LockOwner::Named(owner.id()),
            ..self.clone()
        }
    }

    /// The same lock without an owner: each hold is a lease of its own.
    pub(crate) fn without_owner(self) -> Self {
        Self {
            owner: LockOwner::Nobody,
            ..self
        }
    }
}
