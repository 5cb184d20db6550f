//! Values for the tests of several modules.

use std::time::Duration;

use crate::id::{ClientId, LeaseId};
use crate::time::{Instant, Ttl};
use crate::token::Token;

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

pub(crate) fn ttl(millis: u64) -> Ttl {
    Ttl::from_millis(millis).unwrap()
}

pub(crate) fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

/// A lease of one client.
pub(crate) const fn lease(number: u64) -> LeaseId {
    LeaseId {
        client: ClientId::from_random([7; 16]),
        number,
    }
}
