//! Histories in which some names are semaphores or read-write locks.

use std::num::NonZeroU32;
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::{Access, Acquire, Claim, LeaseId, Op, Token};
use leasehold_sim::history::Histories;

/// One of so many requests does not match its name.
const MISMATCHES: u32 = 12;

/// One of so many requests to acquire is a change of what the lease holds, or of the limit.
const CHANGES: u32 = 5;

/// Longer than any history.
const LONG: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Whether a name is a semaphore or a read-write lock.
const fn is_one(name: usize) -> bool {
    name % 2 == 1
}

/// The same histories, in which every fourth name is a semaphore, and every fourth a read-write lock. The leases of a
/// semaphore request different numbers of permits, and a few requests have another limit, too many permits, or are for a
/// mutex.
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
            request.claim = claim(*name, request.lease.number, &mut rng);
            if rng.u32(0..CHANGES) == 0 {
                *op = change(*name, request, &mut rng);
            }
        }
    }
    histories
}

/// What a lease requests: the same in all its requests that match.
fn claim(name: usize, number: u64, rng: &mut Rng) -> Claim {
    if name % 4 == 3 {
        return match rng.u32(0..MISMATCHES) {
            0 => Claim::Mutex,
            1 => permits(1, 2, false),
            _ => Claim::Access(access(number)),
        };
    }
    let limit = limit(name);
    let weight = 1 + u32::try_from(number % u64::from(limit)).unwrap();
    let numbered = number.is_multiple_of(3);
    match rng.u32(0..MISMATCHES * 3) {
        0 => Claim::Mutex,
        1 => permits(weight, limit + 1, numbered),
        2 => permits(limit + 1, limit, numbered),
        3 => Claim::Access(access(number)),
        _ => permits(weight, limit, numbered),
    }
}

fn limit(name: usize) -> u32 {
    2 + u32::try_from(name / 4 % 3).unwrap()
}

fn access(number: u64) -> Access {
    match number % 4 {
        0 => Access::Write,
        1 => Access::Upgradable,
        _ => Access::Read,
    }
}

fn permits(weight: u32, limit: u32, numbered: bool) -> Claim {
    let [weight, limit] = [weight, limit].map(|number| NonZeroU32::new(number).unwrap());
    Claim::Permits {
        weight,
        limit,
        numbered,
    }
}

/// A conversion in the place of a request, or another limit.
fn change(name: usize, request: &Acquire, rng: &mut Rng) -> Op {
    if name % 4 == 1 && rng.u32(0..4) == 0 {
        return Op::SetLimit {
            permits: NonZeroU32::new(rng.u32(1..=limit(name) + 1)).unwrap(),
            if_version: rng.bool().then(|| rng.u64(0..3)),
            // Without a time it ends with the last lease.
            keep: if rng.bool() { LONG } else { Duration::ZERO },
        };
    }
    let LeaseId { number, .. } = request.lease;
    let wanted = match rng.u32(0..3) {
        0 => number,
        _ => rng.u64(0..12),
    };
    let claim = match claim(name, wanted, rng) {
        // It is for no mutex.
        Claim::Mutex => request.claim,
        claim => claim,
    };
    Op::Convert {
        lease: request.lease,
        // Whoever plays the history knows the token.
        first: Token::MAX,
        claim: if claim == Claim::Mutex {
            permits(1, 1, false)
        } else {
            claim
        },
        ttl: request.ttl,
        tokens: request.tokens,
        wait: request.wait,
    }
}
