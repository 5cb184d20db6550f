//! One lease id on its way to a grant.

use super::messages::RenewalOptions;
use crate::id::LeaseId;
use crate::lease::Lease;
use crate::lease::holds::{HoldId, Term};
use crate::record::Grant;
use crate::record::queue;
use crate::release::{AbandonedLease, LateRelease, ReleaseOrder};
use crate::time::{self, Instant, StoreTime, Ttl};
use crate::token::TokenCount;

/// One lease id on its way to a grant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) lease: LeaseId,
    pub(super) tokens: TokenCount,
    pub(super) unknown: Option<Unknown>,
    pub(super) queued: Option<Queued>,
    /// By how many of its requests the store may know the id.
    pub(super) known: u32,
}

/// When the first and the last request were sent whose effect is unknown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unknown {
    pub(super) first: Instant,
    pub(super) last: Instant,
}

/// The last request whose reply was a place in the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    pub(super) sent: Instant,
    /// The store's time of the reply.
    pub(super) replied: StoreTime,
    pub(super) shard: Option<u32>,
}

/// A request without a reply so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub(super) sent: Instant,
    /// The earlier requests whose effect is unknown.
    pub(super) earlier: Option<Unknown>,
    /// By how many requests the store may have known the id before.
    pub(super) known: u32,
}

impl Attempt {
    /// A lease id that no request has named.
    pub(super) const fn new(lease: LeaseId, tokens: TokenCount) -> Self {
        Self {
            lease,
            tokens,
            unknown: None,
            queued: None,
            known: 0,
        }
    }

    /// Notes that a request is sent.
    pub(super) fn send(&mut self, now: Instant) -> InFlight {
        let (earlier, known) = (self.unknown, self.known);
        self.known += 1;
        let first = earlier.map_or(now, |unknown| unknown.first);
        self.unknown = Some(Unknown { first, last: now });
        InFlight {
            sent: now,
            earlier,
            known,
        }
    }

    /// The lease of a grant that was notified and received at `received`. `None`: its validity is unknown.
    pub(super) fn accept(
        &self,
        grant: &Grant,
        received: Instant,
        shard: u32,
        RenewalOptions { policy, fixed }: RenewalOptions,
    ) -> Option<(Lease, HoldId)> {
        let queued = self.queued?;
        // Another shard granted it, by another clock.
        if queued.shard != Some(shard) {
            return None;
        }
        // The refusal is newer: this process was stopped, and the grant has expired.
        if grant.now < queued.replied {
            return None;
        }
        // A fixed lease lasts for its whole ttl, while the grant lasts until the first renewal.
        if fixed.is_some_and(|ttl| ttl > grant.ttl) {
            return None;
        }
        let ttl = queue::acceptance(fixed.unwrap_or(policy.ttl)).min(grant.ttl);
        let age = queued.replied.until(grant.now);
        let times = time::granted(queued.sent, age, received, ttl);
        let term = match fixed {
            Some(_) => Term::Fixed(times.1),
            None => Term::Renewed,
        };
        Some(Lease::accepted(policy, ttl, term, times))
    }

    /// The lease id, once it is abandoned.
    pub(super) fn abandoned(&self, ttl: Ttl, order: ReleaseOrder) -> AbandonedLease {
        AbandonedLease {
            lease: self.lease,
            ttl,
            late: self.late_release(ttl),
            order,
        }
    }

    pub(super) fn late_release(&self, ttl: Ttl) -> Option<LateRelease> {
        self.unknown.map(|unknown| LateRelease {
            at: unknown.last.after(ttl.as_duration()),
            single: self.known == 1,
        })
    }
}
