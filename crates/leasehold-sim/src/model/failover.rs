//! One store that is replaced, once, by a replica without the last grants.
//!
//! Tokens follow from the counter and, by the rule, from the clock. A lease may expire at any moment, so the
//! holder makes no difference; only the tokens do.

use leasehold_core::Rows;
use leasehold_core::time::{StoreTime, Ttl};

use super::core;
use super::explore::{Model, Property, Take};
use super::labels::{members, name, set};

/// How many acquisitions there are.
const ATTEMPTS: usize = 3;

/// Ticks of the clock, each the smallest step of a token: a microsecond. More make no difference, since every
/// clock is ahead of every token by then.
const LAST_TICK: u8 = 8;

setup! {
    /// A store, its replica, and acquisitions.
    Failover {
        /// Whether tokens follow the clock.
        clock: bool = true,
        /// How long a promotion takes, in ticks: as far as tokens can be ahead of the clock, one grant less than there are.
        gap: u8 = 2,
        /// By how many ticks the replica's clock is behind.
        behind: u8 = 0,
        /// Whether the old store goes on granting.
        split_brain: bool = false,
    }
}

/// A state: counters, clocks and attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    counter: u8,
    /// The counter of the replica.
    copied: u8,
    /// The counter of the old store, if it goes on.
    old: Option<u8>,
    now: u8,
    promoted: bool,
    attempts: [Attempt; ATTEMPTS],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Attempt {
    /// Its token, once it was granted.
    token: u8,
    /// Whether it has received the grant.
    won: bool,
    /// The attempts that had won before it began, and those that had been granted the lock before it was.
    before: u8,
    owned_before: u8,
}

impl Failover {
    /// The token that the rule gives to an attempt, which is the next counter.
    fn token(&self, counter: u8, now: u8, at: usize) -> u8 {
        let mut record = Rows::default();
        record.raise_counter(core::token(counter));
        let now = StoreTime::from_micros(if self.clock { now.into() } else { 0 });
        let op = core::acquire(at, Ttl::USER_MIN, None);
        core::apply(&mut record, &op, now);
        core::counter(record.head().counter)
    }

    fn grant(&self, state: &State, at: usize, take: Take<'_, State>) {
        let mut granted = |mut next: State, token: u8, by: &str| {
            next.attempts[at] = Attempt {
                token,
                won: false,
                before: set(&state.attempts, |other| other.won),
                owned_before: set(&state.attempts, |other| other.token != 0),
            };
            let label = format_args!("{by} grants to {} with token {token}", name(at));
            take(&label, next);
        };
        let behind = if state.promoted { self.behind } else { 0 };
        let counter = self.token(state.counter, state.now.saturating_sub(behind), at);
        granted(State { counter, ..*state }, counter, "the store");
        if let Some(old) = state.old {
            let token = self.token(old, state.now, at);
            let (old, by) = (Some(token), "the old store");
            granted(State { old, ..*state }, token, by);
        }
    }
}

impl Model for Failover {
    type State = State;

    fn initial(&self) -> Vec<State> {
        // No clock is before its start.
        let now = 1 + self.behind;
        vec![State {
            now,
            ..State::default()
        }]
    }

    fn steps(&self, state: &State, take: Take<'_, State>) {
        let attempts = &state.attempts;
        if let Some(at) = attempts.iter().position(|attempt| attempt.token == 0) {
            self.grant(state, at, take);
        }
        for (at, attempt) in attempts.iter().enumerate() {
            if attempt.token != 0 && !attempt.won {
                let mut next = *state;
                next.attempts[at].won = true;
                take(&format_args!("{} receives its grant", name(at)), next);
            }
        }
        let copied = state.counter;
        take(&"the replica catches up", State { copied, ..*state });
        if state.now < LAST_TICK {
            let now = state.now + 1;
            take(&"a tick", State { now, ..*state });
        }
        if !state.promoted {
            let promoted = State {
                promoted: true,
                counter: state.copied,
                now: state.now + self.gap,
                old: self.split_brain.then_some(state.counter),
                ..*state
            };
            take(&"the replica is promoted", promoted);
        }
    }

    fn violations(&self, state: &State) -> Vec<Property> {
        let winners = || {
            members(set(&state.attempts, |it| it.won).into())
                .map(move |at| (at, state.attempts[at]))
        };
        let pairs = winners().flat_map(|early| winners().map(move |late| (early, late)));
        let violated = pairs.flat_map(|((one, early), (other, late))| {
            let is_behind = |earlier: u8| earlier & 1 << one != 0 && late.token <= early.token;
            let is_twice = one != other && late.token == early.token;
            [
                is_twice.then_some(Property::Unique),
                is_behind(late.before).then_some(Property::RealTime),
                is_behind(late.owned_before).then_some(Property::Ownership),
            ]
        });
        violated.flatten().collect()
    }

    fn successes(&self, state: &State) -> usize {
        set(&state.attempts, |attempt| attempt.won).count_ones() as usize
    }
}
