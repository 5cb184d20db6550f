//! How a client gets rid of a lease id for good.

use leasehold_core::{Instant, LeaseId, Op, Ttl};

use super::client::{Call, Caller};

/// The release of one lease: now, until it is answered, and once more after its ttl if a request
/// about it may still run late.
#[derive(Debug)]
pub(crate) struct Farewell {
    lease: LeaseId,
    ttl: Ttl,
    unsure: bool,
    over: Instant,
    call: Option<Call>,
}

impl Farewell {
    pub(crate) fn say(
        caller: &mut Caller,
        lease: LeaseId,
        ttl: Ttl,
        unsure: bool,
        now: Instant,
    ) -> Self {
        Self {
            lease,
            ttl,
            unsure,
            over: now.after(ttl.as_duration()),
            call: Some(caller.call(release(lease, ttl), ttl, now)),
        }
    }

    pub(crate) fn next_wake(&self) -> Instant {
        let gives_up = self.call.map(|call| call.gives_up);
        gives_up.map_or(self.over, |gives_up| gives_up.min(self.over))
    }

    /// Tells it the time. `false`: it is done.
    pub(crate) fn wake(&mut self, caller: &mut Caller, now: Instant) -> bool {
        if now >= self.over {
            if self.unsure {
                caller.call(release(self.lease, self.ttl), self.ttl, now);
            }
            return false;
        }
        if self.call.is_some_and(|call| now >= call.gives_up) {
            self.call = Some(caller.call(release(self.lease, self.ttl), self.ttl, now));
        }
        true
    }

    /// A request was answered. `false`: it is done.
    pub(crate) fn answer(&mut self, number: u64) -> bool {
        if self.call.is_some_and(|call| call.number == number) {
            self.call = None;
        }
        self.call.is_some() || self.unsure
    }
}

fn release(lease: LeaseId, ttl: Ttl) -> Op {
    Op::Release {
        lease,
        count: 0,
        ttl,
    }
}
