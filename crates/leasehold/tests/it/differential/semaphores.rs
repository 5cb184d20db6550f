//! Histories in which some names are semaphores.

use std::num::NonZeroU32;

use fastrand::Rng;
use leasehold_core::{Acquire, Claim, Op};
use leasehold_sim::history::Histories;

/// One of so many requests for a semaphore does not match it.
const MISMATCHES: u32 = 12;

/// Whether a name is a semaphore.
pub(crate) const fn is_one(name: usize) -> bool {
    name % 2 == 1
}

/// The same histories, in which every second name is a semaphore: its leases request different numbers of permits, and
/// a few requests another limit, too many permits, or a mutex.
pub(crate) fn added(mut histories: Histories) -> Histories {
    let mut rng = Rng::with_seed(histories.seed);
    let batches = histories
        .rounds
        .iter_mut()
        .flat_map(|round| &mut round.batches);
    for (name, op) in batches.flatten() {
        if let Op::Acquire(request) = op
            && is_one(*name)
        {
            request.claim = claim(*name, request, &mut rng);
        }
    }
    histories
}

/// What a lease requests: the same in all its requests that match.
fn claim(name: usize, request: &Acquire, rng: &mut Rng) -> Claim {
    let limit = 2 + u32::try_from(name / 2 % 3).unwrap();
    let weight = 1 + u32::try_from(request.lease.number % u64::from(limit)).unwrap();
    match rng.u32(0..MISMATCHES * 3) {
        0 => Claim::Mutex,
        1 => permits(weight, limit + 1),
        2 => permits(limit + 1, limit),
        _ => permits(weight, limit),
    }
}

fn permits(weight: u32, limit: u32) -> Claim {
    let [weight, limit] = [weight, limit].map(|number| NonZeroU32::new(number).unwrap());
    Claim::Permits { weight, limit }
}
