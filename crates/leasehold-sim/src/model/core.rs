//! Conversions between small numbers and the types of the rule.

use std::num::NonZeroU32;

use leasehold_core::id::{ClientId, LeaseId};
use leasehold_core::mutex::{Op, RecordHolder};
use leasehold_core::time::{StoreTime, Ttl};
use leasehold_core::token::{Token, TokenCount};

/// The lease of the attempt with this number.
pub(super) fn lease(attempt: usize) -> LeaseId {
    LeaseId {
        client: ClientId::from_random([7; 16]),
        number: attempt as u64,
    }
}

/// The number of the attempt that has a lease.
pub(super) fn attempt(lease: LeaseId) -> u8 {
    lease.number as u8
}

/// A counter. 0 is none.
pub(super) fn token(counter: u8) -> Option<Token> {
    Token::new(counter.into())
}

/// A counter as a small number, or the largest one.
pub(super) fn counter(token: Option<Token>) -> u8 {
    token.map_or(0, |token| u8::try_from(token.get()).unwrap_or(u8::MAX))
}

/// The hold of an attempt until a time.
pub(super) fn hold(attempt: usize, expires_at: StoreTime) -> RecordHolder {
    RecordHolder {
        lease: lease(attempt),
        count: NonZeroU32::MIN,
        expires_at,
    }
}

/// The acquire of an attempt.
pub(super) fn acquire(attempt: usize, ttl: Ttl, proposal: Option<Token>) -> Op {
    Op::Acquire {
        lease: lease(attempt),
        count: NonZeroU32::MIN,
        ttl,
        tokens: TokenCount::MIN,
        proposal,
        wait: false,
    }
}

/// The request that sets its token.
pub(super) fn set_token(attempt: usize, first: Token) -> Op {
    Op::SetToken {
        lease: lease(attempt),
        first,
        tokens: TokenCount::MIN,
    }
}
