//! Contention for a lock: when a request is retried, and how often a lease is handed off inside a process
//! before other processes have their turn.
//!
//! [`retry_in_queue_after`] is for a client that was refused, [`retry_after`] for one whose store fails, and
//! [`Backoff`] for one of several contenders that keep each other from a majority.

use std::time::Duration;

use crate::queue;
use crate::time::{self, Instant, Ttl};
use crate::token::{Token, TokenCount};

/// How often a lease is handed off from task to task before it is released.
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
    /// How many tokens a lease needs to be handed off as often as allowed.
    #[must_use]
    pub fn tokens(&self) -> TokenCount {
        TokenCount::MIN.saturating_add(self.max.into())
    }
}

/// The hand-offs of one lease.
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

    /// The token of the current holder.
    #[must_use]
    pub fn token(&self) -> Token {
        // Inside the block, which ends at a valid token.
        Token::new(self.first.get() + u64::from(self.passed)).unwrap_or(self.first)
    }

    /// Hands the lease off to the next task, which gets a larger token. `false`: it is to be released.
    pub fn pass(&mut self, now: Instant) -> bool {
        let goes_on = now < self.ends && self.passed + 1 < self.tokens.get();
        if goes_on {
            self.passed += 1;
        }
        goes_on
    }
}

/// How late a renewal may arrive that was sent in time.
const LATE: Duration = Duration::from_millis(50);

/// How long a waiter in the queue waits before it retries its request, if no grant is notified.
///
/// * The head retries when the lease of the holder has certainly expired, as far as clocks may drift apart:
///   the holder may have died. A live holder has renewed by then, so this is about once in its ttl.
/// * Each waiter behind gives those before it the time to accept their grants.
/// * Each waiter retries at least once in its own ttl, to keep the queue and to notice a store that lost it.
#[must_use]
pub fn retry_in_queue_after(time_left: Duration, queue_position: u32, ttl: Ttl) -> Duration {
    let expiry = time_left + time::drift(time_left) + (time_left / 10).min(LATE);
    let before = queue::acceptance(ttl).as_duration() * queue_position.min(1_000);
    (expiry + before).min(ttl.as_duration())
}

/// The bounds of the interval between two requests to a store that fails.
const RETRY_MIN: Duration = Duration::from_millis(4);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// The retry interval at a store that has failed for `failing`: it did not answer, or refused requests for a
/// while.
///
/// A quarter of the time that it has failed. So a short failure costs little time, and a long one little
/// load: a client sends a few dozen requests in the first minute, and one every two seconds from then on.
#[must_use]
pub fn retry_after(failing: Duration) -> Duration {
    (failing / 4).clamp(RETRY_MIN, RETRY_MAX)
}

/// How far contenders spread out that keep each other from a majority.
///
/// Contenders whose requests coincide split the vote, and nobody wins. So each of them sends its request at a
/// random instant within a window. The window doubles with each split vote, grows a little when another
/// contender has won meanwhile, and is halved by a win of its own. A contender whose vote was never split has
/// no window, and sends its request at once. A client keeps the window of a lock from one acquisition to the
/// next: it measures how many others want the lock, which is not learned anew each time.
///
/// This is the binary exponential backoff of Metcalfe and Boggs, "Ethernet: distributed packet
/// switching for local computer networks" (1976), with the gentle changes of V. Bharghavan et al.,
/// "MACAW" (1994).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    window: Duration,
}

/// The bounds of the window. A round that takes long has a larger one.
const WINDOW_MIN: Duration = Duration::from_millis(4);
const WINDOW_MAX: Duration = Duration::from_millis(250);

/// How many rounds fit into the largest window at least.
const WINDOW_ROUNDS: u32 = 32;

impl Backoff {
    /// The vote was split, in a round of this duration.
    pub fn split(&mut self, round: Duration) {
        let doubled = (self.window * 2).max(round * 2);
        self.window = doubled.clamp(WINDOW_MIN, WINDOW_MAX.max(round * WINDOW_ROUNDS));
    }

    /// Another contender has won.
    pub fn refused(&mut self) {
        let grown = self.window * 9 / 8;
        self.window = grown.min(WINDOW_MAX.max(self.window));
    }

    /// The lock was granted.
    pub fn won(&mut self) {
        self.window /= 2;
        if self.window < WINDOW_MIN {
            self.window = Duration::ZERO;
        }
    }

    /// The window within which a request is sent, at random. Zero: at once.
    #[must_use]
    pub const fn window(&self) -> Duration {
        self.window
    }
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
    fn the_head_retries_first_and_each_waiter_at_least_once_in_its_ttl() {
        let wait =
            |left, place| retry_in_queue_after(Duration::from_millis(left), place, ttl(30_000));
        let ms = Duration::from_millis;
        assert_eq!(wait(20_000, 0).as_millis(), 20_252);
        assert_eq!(wait(20_000, 1).as_millis(), 23_252);
        assert_eq!(wait(20_000, 50), ms(30_000));
        assert_eq!(wait(1_000_000, 0), ms(30_000));
        assert_eq!(wait(1_000_000, 3), ms(30_000));
        assert_eq!(wait(0, u32::MAX), ms(30_000));
    }

    #[test]
    fn a_long_failure_costs_little_load_and_a_short_one_little_time() {
        let (mut failing, mut requests) = (Duration::ZERO, 0);
        while failing < Duration::from_secs(60) {
            let interval = retry_after(failing);
            assert!(interval <= RETRY_MIN.max(failing / 4));
            failing += interval;
            requests += 1;
        }
        assert!((20..80).contains(&requests), "{requests}");
        assert_eq!(retry_after(failing), RETRY_MAX);
        assert_eq!(retry_after(Duration::ZERO), RETRY_MIN);
    }

    #[test]
    fn a_window_grows_with_splits_and_with_the_time_of_a_round() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::default();
        let mut windows = Vec::new();
        for _ in 0..4 {
            backoff.split(ms(1));
            windows.push(backoff.window());
        }
        assert_eq!(windows, [ms(4), ms(8), ms(16), ms(32)]);
        backoff.refused();
        assert_eq!(backoff.window(), ms(36));
        (0..100).for_each(|_| backoff.refused());
        assert_eq!(backoff.window(), WINDOW_MAX);
        let mut slow = Backoff::default();
        slow.split(ms(100));
        assert_eq!(slow.window(), ms(200));
        (0..100).for_each(|_| slow.split(ms(100)));
        assert_eq!(slow.window(), ms(3_200));
        slow.refused();
        assert_eq!(slow.window(), ms(3_200));
    }

    #[test]
    fn a_window_closes_with_wins_and_opens_only_with_a_split() {
        let mut backoff = Backoff::default();
        backoff.refused();
        backoff.won();
        assert_eq!(backoff.window(), Duration::ZERO);
        (0..100).for_each(|_| backoff.split(Duration::from_millis(1)));
        let wins = (0..).take_while(|_| {
            backoff.won();
            !backoff.window().is_zero()
        });
        assert_eq!(wins.count(), 5);
    }
}
