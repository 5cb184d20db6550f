//! The settings of a mutex.

use leasehold_core::{Policy, RenewalOptions};

use super::{LockOwner, Mutex};
use crate::driver::context::AcquireOptions;
use crate::store::Feature;
use crate::{LeaseOptions, Result, config};

impl Mutex {
    /// The same lock with other settings, which are checked.
    pub(super) fn changed(&self, options: LeaseOptions) -> Result<Self> {
        let store = &self.driver.context.store;
        let before = &self.options;
        let is_renewed = options.ttl.is_some() || options.max_hold.is_some();
        let mut policy = before.lease.policy;
        if let Some(ttl) = options.ttl {
            policy = Policy {
                max_hold: policy.max_hold,
                ..Policy::of(config::ttl("ttl", ttl)?)
            };
        }
        policy.max_hold = options.max_hold.or(policy.max_hold);
        let checked = policy.check();
        checked.map_err(|error| config::invalid(error.to_string()))?;
        let fixed = match options.fixed {
            Some(lease) => Some(config::ttl("lease", lease)?),
            None => before.lease.fixed.filter(|_| !is_renewed),
        };
        let durability = options.durability.unwrap_or(before.durability);
        if durability.is_replicated() {
            let kind = store.capabilities().kind;
            kind.check(Feature::Replicas, store)?;
        }
        config::check_durability(durability, &policy)?;
        let min_hold = match options.min_hold {
            Some(min_hold) => config::min_hold(min_hold, store.capabilities().longest_ttl)
                .map_err(|error| error.at_store(store))?,
            None => self.min_hold,
        };
        let owner = options.owner.map(|owner| LockOwner::Named(owner.id()));
        Ok(Self {
            options: AcquireOptions {
                lease: RenewalOptions { policy, fixed },
                durability,
                ..before.clone()
            },
            min_hold,
            owner: owner.unwrap_or(self.owner),
            ..self.clone()
        })
    }

    /// The same lock without an owner: each hold is a lease of its own.
    pub(crate) fn without_owner(self) -> Self {
        Self {
            owner: LockOwner::Nobody,
            ..self
        }
    }
}
