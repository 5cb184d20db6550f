//! Conversions between small numbers and the types of the rule.

use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_core::id::{ClientId, LeaseId};
use leasehold_core::record::End;
use leasehold_core::time::{Instant, StoreTime, Ttl};
use leasehold_core::token::{Token, TokenCount};
use leasehold_core::{Acquire, Environment, Holder, Op, Outcome, Rows};

/// The time of the clock of a store. Only durations make a difference.
pub(super) const NOW: StoreTime = StoreTime::from_micros(1_000_000_000);

/// A duration in ticks, rounded up.
pub(super) fn ticks(duration: Duration, tick: Duration) -> u8 {
    let ticks = duration.as_nanos().div_ceil(tick.as_nanos());
    u8::try_from(ticks).unwrap_or(u8::MAX)
}

/// An instant so long ago, and the present one.
pub(super) fn instants(age: Duration) -> (Instant, Instant) {
    let now = Instant::from_nanos(u64::from(u32::MAX) << 20);
    (now.before(age), now)
}

/// The lease of the attempt with this number, which has a client of its own.
pub(super) fn lease(attempt: usize) -> LeaseId {
    LeaseId {
        client: ClientId::from_random([attempt as u8; 16]),
        number: 1,
    }
}

/// The number of the attempt that has a lease.
pub(super) fn attempt(lease: LeaseId) -> u8 {
    lease.client.to_bytes()[0]
}

/// A counter. 0 is none.
pub(super) fn token(counter: u8) -> Option<Token> {
    Token::new(counter.into())
}

/// A counter as a small number, or the largest one.
pub(super) fn counter(token: Option<Token>) -> u8 {
    token.map_or(0, |token| u8::try_from(token.get()).unwrap_or(u8::MAX))
}

/// The holder of a lock.
pub(super) fn held_by(lease: LeaseId, end: StoreTime) -> Holder {
    Holder {
        lease,
        is_reserved: false,
        count: NonZeroU32::MIN,
        weight: 1,
        number: None,
        // Only a repeated acquire returns it, and no model reads that reply.
        first: Token::MAX,
        requested_at: None,
        end: End::At(end),
    }
}

/// The record of a lock. A lease that holds it does so until `end`.
pub(super) fn record(lease: Option<LeaseId>, end: StoreTime) -> Rows {
    let held = lease.map(|lease| Rows::held(held_by(lease, end), None));
    held.unwrap_or_default()
}

/// Applies the rule, while all clients are alive.
pub(super) fn apply(record: &mut Rows, op: &Op, now: StoreTime) -> Outcome {
    record.apply(op, &Environment::at(now), |_| true).outcome
}

/// The holder of a lock, and its time left.
pub(super) fn holder(record: &Rows, now: StoreTime) -> Option<(&Holder, Duration)> {
    let environment = Environment::at(now);
    let holder = record.holders(&environment).next()?;
    Some((holder, environment.time_left(holder.end)))
}

/// The attempt that holds a lock, plus one, and its time left. 0: none.
pub(super) fn hold(record: &Rows, now: StoreTime) -> (u8, Duration) {
    let holder = holder(record, now);
    let held = holder.map(|(holder, time_left)| (1 + attempt(holder.lease), time_left));
    held.unwrap_or_default()
}

/// The acquire of an attempt.
pub(super) fn acquire(attempt: usize, ttl: Ttl, proposal: Option<Token>) -> Op {
    Op::Acquire(Acquire {
        proposal,
        ..Acquire::mutex(lease(attempt), ttl)
    })
}

/// The request that sets its token.
pub(super) fn set_token(attempt: usize, first: Token) -> Op {
    Op::SetToken {
        lease: lease(attempt),
        first,
        tokens: TokenCount::MIN,
    }
}
