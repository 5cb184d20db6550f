//! Waiting and handing off inside a process: when to ask again, and how often a lease may pass from
//! one task to the next before the other processes have their turn.

use std::time::Duration;

use crate::queue;
use crate::time::{self, Instant, Ttl};
use crate::token::{Token, TokenCount};

/// How far a lease is handed from task to task before it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handoff {
    /// How many times. 0: never.
    pub max: u16,
    /// How long after its grant.
    pub time: Duration,
}

impl Default for Handoff {
    /// 256 times and 20 ms: enough to make a round trip's share small, short enough that other
    /// processes wait no longer than for a slow holder.
    fn default() -> Self {
        Self {
            max: 256,
            time: Duration::from_millis(20),
        }
    }
}

impl Handoff {
    /// How many tokens a lease needs that may be handed off as often as allowed.
    #[must_use]
    pub fn tokens(&self) -> TokenCount {
        TokenCount::MIN.saturating_add(self.max.into())
    }
}

/// The way of one lease through the tasks of its process.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    first: Token,
    tokens: TokenCount,
    passed: u32,
    ends: Instant,
}

impl Chain {
    /// A lease that was granted at `granted` with a block of tokens.
    #[must_use]
    pub fn new(handoff: Handoff, first: Token, tokens: TokenCount, granted: Instant) -> Self {
        Self {
            first,
            tokens: tokens.min(handoff.tokens()),
            passed: 0,
            ends: granted.after(handoff.time),
        }
    }

    /// How often it was handed off.
    #[must_use]
    pub const fn passed(&self) -> u32 {
        self.passed
    }

    /// The token of who holds it now.
    #[must_use]
    pub fn token(&self) -> Token {
        // Inside the block, which ends at a valid token.
        Token::new(self.first.get() + u64::from(self.passed)).unwrap_or(self.first)
    }

    /// Hands the lease to the next task, which gets a larger token. `false`: it is to be released.
    pub fn pass(&mut self, now: Instant) -> bool {
        let goes_on = now < self.ends && self.passed + 1 < self.tokens.get();
        if goes_on {
            self.passed += 1;
        }
        goes_on
    }
}

/// How late a renewal may be that was on its way in time.
const LATE: Duration = Duration::from_millis(50);

/// How long a refused lease waits in the queue before it asks again, if it is not told its grant.
///
/// * The head asks when the holder's time is over for sure, as far as clocks may part: it may have
///   died. A holder that lives has renewed by then, so this is about once in its ttl.
/// * Each one behind gives those before it the time to take their grants.
/// * Everybody asks at least once in its own ttl, to keep the queue and to learn of a store that
///   lost it.
#[must_use]
pub fn ask_again_after(left: Duration, place: u32, ttl: Ttl) -> Duration {
    let over = left + time::drift(left) + (left / 10).min(LATE);
    let before = queue::acceptance(ttl).as_duration() * place.min(1_000);
    (over + before).min(ttl.as_duration())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn ttl(millis: u64) -> Ttl {
        Ttl::from_millis(millis).unwrap()
    }

    #[test]
    fn a_chain_ends_by_number_by_time_and_by_tokens() {
        let handoff = Handoff {
            max: 2,
            time: Duration::from_millis(20),
        };
        let first = Token::new(100).unwrap();
        let mut chain = Chain::new(handoff, first, handoff.tokens(), at(0));
        assert_eq!(chain.token().get(), 100);
        assert!(chain.pass(at(1)));
        assert!(chain.pass(at(19)));
        assert_eq!(chain.token().get(), 102);
        assert!(!chain.pass(at(19)));
        let mut late = Chain::new(handoff, first, handoff.tokens(), at(0));
        assert!(!late.pass(at(20)));
        let mut alone = Chain::new(handoff, first, TokenCount::MIN, at(0));
        assert!(!alone.pass(at(1)));
        assert_eq!(alone.token(), first);
    }

    #[test]
    fn no_handoff_needs_one_token() {
        let off = Handoff {
            max: 0,
            ..Handoff::default()
        };
        assert_eq!(off.tokens(), TokenCount::MIN);
        let first = Token::new(100).unwrap();
        let tokens = Handoff::default().tokens();
        assert!(!Chain::new(off, first, tokens, at(0)).pass(at(0)));
    }

    #[test]
    fn the_head_asks_first_and_nobody_more_than_once_in_its_ttl() {
        let wait = |left, place| ask_again_after(Duration::from_millis(left), place, ttl(30_000));
        let ms = Duration::from_millis;
        assert_eq!(wait(20_000, 0).as_millis(), 20_252);
        assert_eq!(wait(20_000, 1).as_millis(), 23_252);
        assert_eq!(wait(20_000, 50), ms(30_000));
        assert_eq!(wait(1_000_000, 0), ms(30_000));
        assert_eq!(wait(1_000_000, 3), ms(30_000));
        assert_eq!(wait(0, u32::MAX), ms(30_000));
    }
}
