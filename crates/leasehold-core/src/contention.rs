//! Contention for a lock: when a request is retried, and how often a lease is handed off inside a process
//! before other processes have their turn.
//!
//! [`retry_in_queue_after`] is for a client that was refused, [`retry_after`] for one whose store fails, and
//! [`Backoff`] for one of several contenders that keep each other from a majority.

use std::time::Duration;

use crate::record::queue;
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

/// The retry interval at a store that has failed for `failing`: it did not reply, or refused requests for a
/// while.
///
/// A quarter of the time that it has failed. So a short failure costs little time, and a long one little
/// load: a client sends a few dozen requests in the first minute, and one every two seconds from then on.
#[must_use]
pub fn retry_after(failing: Duration) -> Duration {
    (failing / 4).clamp(RETRY_MIN, RETRY_MAX)
}

/// The random backoff of a contender that other contenders keep from a majority.
///
/// Contenders whose requests coincide split the vote, and none of them wins. So each of them sends its
/// request at a random instant within a window. The window doubles with each split vote, grows a little when another
/// has won meanwhile, and shrinks by a quarter with a win of its own. A contender whose vote was never
/// split has no window, and sends its request immediately. A client keeps the window of a lock from one
/// acquisition to the next: the window measures how many others contend for the lock.
///
/// This is the binary exponential backoff of Metcalfe and Boggs, "Ethernet: distributed packet
/// switching for local computer networks" (1976), with the gentle changes of V. Bharghavan et al.,
/// "MACAW" (1994). Alone it has the capture effect: the window of the last winner is the smallest, so it
/// wins again. Two rules bound that:
///
/// * **Age has priority.** The window after a change of the record shrinks with the time since the first
///   refusal, down to nothing after some hundred rounds. On busy masters a round takes long: their
///   contenders would otherwise all be old, and send their requests at once.
/// * **A turn ends.** A client that has had the lock for a turn pauses after its release before its next
///   request, even if it was never refused: nothing else shows it that others wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    window: Duration,
    /// The average duration of a round in which the lock is not granted.
    round: Duration,
    /// Since when the client is refused.
    refused_since: Option<Instant>,
    turn: Option<Turn>,
}

/// The time in which only this client was granted the lock, as far as it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    begun: Instant,
    /// The last release.
    released: Option<Instant>,
}

/// The bounds of the window. A round that takes long has a larger one.
const WINDOW_MIN: Duration = Duration::from_millis(4);
const WINDOW_MAX: Duration = Duration::from_millis(250);

/// How many rounds fit into the largest window at least.
const WINDOW_ROUNDS: u32 = 32;

/// After so many rounds of refusals a contender has no window after a change. With fewer, the many
/// contenders of busy masters all send requests at once; with more, one of few contenders starves.
const AGE_ROUNDS: u32 = 512;

/// How long a client may acquire the lock again and again before it pauses, and how long the pause is:
/// enough for others to be notified of the release and to send a request, and little of a turn.
const TURN: Duration = Duration::from_millis(200);
const YIELD: Duration = Duration::from_millis(4);

impl Backoff {
    /// The vote was split, in a round of this duration.
    pub fn split(&mut self, round: Duration, now: Instant) {
        let doubled = (self.window * 2).max(round * 2);
        self.window = doubled.clamp(WINDOW_MIN, WINDOW_MAX.max(round * WINDOW_ROUNDS));
        self.not_granted(round, now);
    }

    /// Another contender has won, as a round of this duration has shown.
    pub fn refused(&mut self, round: Duration, now: Instant) {
        let grown = self.window * 9 / 8;
        self.window = grown.min(WINDOW_MAX.max(self.window));
        self.not_granted(round, now);
    }

    /// The lock was granted.
    pub fn won(&mut self, now: Instant) {
        self.window = self.window * 3 / 4;
        if self.window < WINDOW_MIN {
            self.window = Duration::ZERO;
        }
        self.refused_since = None;
        self.turn.get_or_insert(Turn {
            begun: now,
            released: None,
        });
    }

    /// The lock is being released.
    pub fn released(&mut self, now: Instant) {
        if let Some(turn) = &mut self.turn {
            turn.released = Some(now);
        }
    }

    /// How long to wait before the first request of an acquisition.
    pub fn pause(&mut self, now: Instant) -> Duration {
        let Some(Turn {
            begun,
            released: Some(released),
        }) = self.turn
        else {
            return Duration::ZERO;
        };
        let pause = YIELD.saturating_sub(now.since(released));
        if pause.is_zero() {
            // Others have had their chance.
            self.turn = None;
        } else if released.since(begun) >= TURN {
            self.turn = None;
            return pause;
        }
        Duration::ZERO
    }

    /// The window within which a request is sent after a split vote, at random. Zero: immediately.
    #[must_use]
    pub const fn window(&self) -> Duration {
        self.window
    }

    /// The window within which a request is sent after a change of the record, at random. Zero: immediately.
    #[must_use]
    pub fn window_after_change(&self, now: Instant) -> Duration {
        let age = self.refused_since.map(|since| now.since(since));
        let old = self.round * AGE_ROUNDS;
        let left = old.saturating_sub(age.unwrap_or_default());
        match old.is_zero() {
            true => self.window,
            false => self.window.mul_f64(left.div_duration_f64(old)),
        }
    }

    fn not_granted(&mut self, round: Duration, now: Instant) {
        self.round = match self.round.is_zero() {
            true => round,
            false => (self.round * 3 + round) / 4,
        };
        self.refused_since.get_or_insert(now);
        self.turn = None;
    }
}

/// A random duration from half of `longest` to the whole of it.
pub(crate) fn upper_half(longest: Duration, spread: f64) -> Duration {
    longest.mul_f64(0.5 + spread / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, ms, token, ttl};

    #[test]
    fn a_chain_ends_by_number_by_time_and_by_tokens() {
        let handoff = Handoff {
            max: 2,
            time: Duration::from_millis(20),
        };
        let first = token(100);
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
        let first = token(100);
        let tokens = Handoff::default().tokens();
        assert!(!Chain::new(off, first, tokens, at(0)).pass(at(0)));
    }

    #[test]
    fn the_head_retries_first_and_each_waiter_at_least_once_in_its_ttl() {
        let wait = |left, place| retry_in_queue_after(ms(left), place, ttl(30_000));
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
        let mut backoff = Backoff::default();
        let mut windows = Vec::new();
        for _ in 0..4 {
            backoff.split(ms(1), at(0));
            windows.push(backoff.window());
        }
        assert_eq!(windows, [ms(4), ms(8), ms(16), ms(32)]);
        backoff.refused(ms(1), at(0));
        assert_eq!(backoff.window(), ms(36));
        (0..100).for_each(|_| backoff.refused(ms(1), at(0)));
        assert_eq!(backoff.window(), WINDOW_MAX);
        let mut slow = Backoff::default();
        slow.split(ms(100), at(0));
        assert_eq!(slow.window(), ms(200));
        (0..100).for_each(|_| slow.split(ms(100), at(0)));
        assert_eq!(slow.window(), ms(3_200));
        slow.refused(ms(1), at(0));
        assert_eq!(slow.window(), ms(3_200));
    }

    #[test]
    fn a_window_closes_with_wins_and_opens_only_with_a_split() {
        let mut backoff = Backoff::default();
        backoff.refused(ms(1), at(0));
        backoff.won(at(0));
        assert_eq!(backoff.window(), Duration::ZERO);
        (0..100).for_each(|_| backoff.split(ms(1), at(0)));
        let wins = (0..).take_while(|_| {
            backoff.won(at(0));
            !backoff.window().is_zero()
        });
        assert_eq!(wins.count(), 14);
    }

    #[test]
    fn a_window_after_a_change_closes_with_rounds_of_age_and_opens_with_a_win() {
        let mut backoff = Backoff::default();
        (0..3).for_each(|_| backoff.split(ms(1), at(1_000)));
        assert_eq!(backoff.window_after_change(at(1_000)), ms(16));
        assert_eq!(backoff.window_after_change(at(1_128)), ms(12));
        assert_eq!(backoff.window_after_change(at(1_512)), Duration::ZERO);
        assert_eq!(backoff.window_after_change(at(9_000)), Duration::ZERO);
        assert_eq!(backoff.window(), ms(16));
        backoff.won(at(9_000));
        assert_eq!(backoff.window_after_change(at(9_500)), ms(12));
        // A round takes 4 ms on average by now.
        backoff.split(ms(13), at(10_000));
        assert_eq!(backoff.window_after_change(at(11_024)), ms(13));
    }

    #[test]
    fn a_turn_ends_with_a_pause_unless_the_lock_was_free_meanwhile_or_another_had_it() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.pause(at(0)), Duration::ZERO);
        let hold = |backoff: &mut Backoff, from: u64, to: u64| {
            backoff.won(at(from));
            backoff.released(at(to));
        };
        hold(&mut backoff, 0, 100);
        assert_eq!(backoff.pause(at(101)), Duration::ZERO);
        hold(&mut backoff, 102, 199);
        assert_eq!(backoff.pause(at(199)), Duration::ZERO);
        hold(&mut backoff, 200, 210);
        assert_eq!(backoff.pause(at(211)), ms(3));
        // The next turn begins anew.
        hold(&mut backoff, 220, 400);
        assert_eq!(backoff.pause(at(401)), Duration::ZERO);
        hold(&mut backoff, 401, 500);
        assert_eq!(backoff.pause(at(504)), Duration::ZERO);
        hold(&mut backoff, 504, 600);
        assert_eq!(backoff.pause(at(600)), Duration::ZERO);
        backoff.refused(ms(1), at(601));
        hold(&mut backoff, 701, 800);
        assert_eq!(backoff.pause(at(800)), Duration::ZERO);
    }
}
