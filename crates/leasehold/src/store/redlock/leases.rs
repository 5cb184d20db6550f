//! What a client must know of its leases at the masters beyond one request: what failed acquisitions have left there, and
//! the renewals in flight.

use std::collections::HashMap;
use std::sync::Mutex;

use leasehold_core::quorum::Leftover;
use leasehold_core::{LeaseId, Op};

use crate::store::api::Request;
use crate::store::lock::lock;

/// The number of leftovers kept. More are forgotten: their releases go to all masters.
const LEFTOVERS_MAX: usize = 4_096;

/// The leases of a client whose requests are not finished.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// The leases of failed acquisitions, until their release is applied.
    leftovers: Mutex<HashMap<LeaseId, Leftover>>,
    renewals: Mutex<HashMap<LeaseId, Renewals>>,
}

/// The renewals of a lease in flight.
#[derive(Debug, Default)]
struct Renewals {
    count: usize,
    released: bool,
}

/// The renewals of one batch, until they are decided and their leases are restored: a master that has forgotten a lease
/// gets it back, unless it was released meanwhile.
pub(super) struct RenewalsInFlight<'a> {
    leases: &'a Leases,
    renewed: Vec<LeaseId>,
}

impl Leases {
    /// What a failed acquisition has left.
    pub(super) fn leftover(&self, lease: LeaseId) -> Option<Leftover> {
        lock(&self.leftovers).get(&lease).copied()
    }

    /// Records what a failed acquisition has left, or that its lease is released.
    pub(super) fn set_leftover(&self, lease: LeaseId, leftover: Option<Leftover>) {
        let mut leftovers = lock(&self.leftovers);
        let Some(leftover) = leftover else {
            leftovers.remove(&lease);
            return;
        };
        if leftovers.len() >= LEFTOVERS_MAX {
            leftovers.clear();
        }
        leftovers.insert(lease, leftover);
    }

    /// Records that a master has released a lease.
    pub(super) fn released_at(&self, lease: LeaseId, master: usize) {
        if let Some(leftover) = lock(&self.leftovers).get_mut(&lease) {
            leftover.clear.insert(master);
        }
    }

    /// Registers the renewals of a batch, and notes its releases. Must be called before the batch is sent.
    pub(super) fn begin_renewals(&self, batch: &[Request]) -> RenewalsInFlight<'_> {
        let mut renewed = Vec::new();
        let mut renewals = lock(&self.renewals);
        for request in batch {
            match &request.op {
                Op::Renew {
                    lease, count: None, ..
                } => {
                    renewals.entry(*lease).or_default().count += 1;
                    renewed.push(*lease);
                }
                Op::Release { lease, .. } => {
                    if let Some(renewals) = renewals.get_mut(lease) {
                        renewals.released = true;
                    }
                }
                _ => {}
            }
        }
        RenewalsInFlight {
            leases: self,
            renewed,
        }
    }
}

impl RenewalsInFlight<'_> {
    /// Sends the acquisitions that restore a lease, unless it was released since its renewal began. A release that
    /// begins meanwhile is sent after them.
    pub(super) fn restore(&self, lease: LeaseId, send: impl FnOnce()) {
        let renewals = lock(&self.leases.renewals);
        if renewals.get(&lease).is_some_and(|it| !it.released) {
            send();
        }
    }
}

impl Drop for RenewalsInFlight<'_> {
    fn drop(&mut self) {
        let mut renewals = lock(&self.leases.renewals);
        for lease in &self.renewed {
            if let Some(of_lease) = renewals.get_mut(lease) {
                of_lease.count -= 1;
                if of_lease.count == 0 {
                    renewals.remove(lease);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::api::fixture::lease;

    #[test]
    fn a_leftover_is_kept_until_its_lease_is_released_and_not_without_bound() {
        let leases = Leases::default();
        leases.set_leftover(lease(1), Some(Leftover::default()));
        leases.released_at(lease(1), 0);
        let clear = leases.leftover(lease(1)).unwrap().clear;
        assert_eq!(clear.iter().collect::<Vec<_>>(), [0]);
        leases.set_leftover(lease(1), None);
        assert_eq!(leases.leftover(lease(1)), None);
        for number in 0..10_000 {
            leases.set_leftover(lease(number), Some(Leftover::default()));
        }
        let left = lock(&leases.leftovers).len();
        assert!(left <= LEFTOVERS_MAX, "{left}");
    }
}
