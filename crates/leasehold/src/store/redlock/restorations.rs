//! The renewals in flight: a master that has forgotten a lease gets it back after its renewal, unless it was released
//! meanwhile.

use std::collections::HashMap;
use std::sync::Mutex;

use leasehold_core::{LeaseId, Op};

use crate::store::api::Request;
use crate::store::lock::lock;

/// The leases whose renewals are in flight.
#[derive(Debug, Default)]
pub(super) struct Restorations(Mutex<HashMap<LeaseId, Renewals>>);

/// The renewals of a lease in flight.
#[derive(Debug, Default)]
struct Renewals {
    count: usize,
    released: bool,
}

/// The renewals of one batch, until they are decided and their leases are restored.
pub(super) struct InFlight<'a> {
    restorations: &'a Restorations,
    leases: Vec<LeaseId>,
}

impl Restorations {
    /// Registers the renewals of a batch, and notes its releases. Must be called before the batch is sent.
    pub(super) fn begin(&self, batch: &[Request]) -> InFlight<'_> {
        let mut leases = Vec::new();
        let mut in_flight = lock(&self.0);
        for request in batch {
            match &request.op {
                Op::Renew {
                    lease, count: None, ..
                } => {
                    in_flight.entry(*lease).or_default().count += 1;
                    leases.push(*lease);
                }
                Op::Release { lease, .. } => {
                    if let Some(renewals) = in_flight.get_mut(lease) {
                        renewals.released = true;
                    }
                }
                _ => {}
            }
        }
        InFlight {
            restorations: self,
            leases,
        }
    }
}

impl InFlight<'_> {
    /// Sends the acquisitions that restore a lease, unless it was released since its renewal began. A release that
    /// begins meanwhile is sent after them.
    pub(super) fn restore(&self, lease: LeaseId, send: impl FnOnce()) {
        let in_flight = lock(&self.restorations.0);
        if in_flight.get(&lease).is_some_and(|it| !it.released) {
            send();
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut in_flight = lock(&self.restorations.0);
        for lease in &self.leases {
            if let Some(renewals) = in_flight.get_mut(lease) {
                renewals.count -= 1;
                if renewals.count == 0 {
                    in_flight.remove(lease);
                }
            }
        }
    }
}
