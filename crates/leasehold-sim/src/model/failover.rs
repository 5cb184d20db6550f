//! One store that may be replaced by a replica without the last grants.
//!
//! Tokens follow from the counter and, by the rule, from the clock. A lease may expire at any moment, so the
//! holder makes no difference; only the tokens do.

use std::fmt;

use leasehold_core::mutex::{self, Outcome, Record};
use leasehold_core::time::{StoreTime, Ttl};

use super::core;
use super::explore::{Model, Property};
use super::labels::name;
use super::masters::ATTEMPTS;

/// Ticks of the clock, each the smallest step of a token: a microsecond. More make no difference, since every
/// clock is ahead of every token by then.
const LAST_TICK: u8 = 8;

/// The setup of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// How many acquisitions there are.
    pub attempts: usize,
    /// How many times the replica is promoted.
    pub promotions: u8,
    /// Whether tokens follow the clock: the rule.
    pub clock: bool,
    /// How long a promotion takes, in ticks.
    pub gap: u8,
    /// By how many ticks the replica's clock is behind.
    pub behind: u8,
    /// Whether the old store goes on granting.
    pub split_brain: bool,
}

/// A store, its replica, and acquisitions.
#[derive(Clone, Copy, Debug)]
pub struct Failover {
    setup: Setup,
}

/// A state: counters, clocks and attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    counter: u8,
    /// The counter of the replica.
    copied: u8,
    /// The counter of the old store, if it goes on, plus one.
    old: u8,
    now: u8,
    promoted: u8,
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

impl Setup {
    /// Three attempts at a store that is not replaced.
    #[must_use]
    pub fn new() -> Self {
        Self {
            attempts: 3,
            promotions: 0,
            clock: true,
            gap: 0,
            behind: 0,
            split_brain: false,
        }
    }

    /// The token that the rule gives to an attempt.
    fn grant(self, counter: &mut u8, now: u8, at: usize) -> Option<u8> {
        let now = if self.clock { now } else { 0 };
        let mut record = Record {
            last_token: core::token(*counter),
            ..Record::default()
        };
        let ttl = Ttl::remainder(Ttl::USER_MIN.as_duration());
        let now = StoreTime::from_micros(now.into());
        match mutex::apply(&mut record, &core::acquire(at, ttl), now, |_| false) {
            Outcome::Granted { first } => {
                *counter = core::counter(record.last_token);
                Some(core::counter(Some(first)))
            }
            _ => None,
        }
    }

    fn clock(self, state: &State) -> u8 {
        let behind = self.behind * state.promoted;
        state.now.saturating_sub(behind)
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self::new()
    }
}

impl Failover {
    /// A model of this setup.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self { setup }
    }

    fn grant(&self, state: &State, at: usize, take: &mut dyn FnMut(&dyn fmt::Display, State)) {
        let won = set(state, |other| other.won);
        let granted = set(state, |other| other.token != 0);
        let mut add = |next: &mut State, token: u8, by: &str| {
            next.attempts[at] = Attempt {
                token,
                won: false,
                before: won,
                owned_before: granted,
            };
            take(
                &format_args!("{by} grants to {} with token {token}", name(at)),
                *next,
            );
        };
        let mut next = *state;
        if let Some(token) = self
            .setup
            .grant(&mut next.counter, self.setup.clock(state), at)
        {
            add(&mut next, token, "the store");
        }
        if let Some(mut counter) = state.old.checked_sub(1)
            && let Some(token) = self.setup.grant(&mut counter, state.now, at)
        {
            let mut next = *state;
            next.old = counter + 1;
            add(&mut next, token, "the old store");
        }
    }

    fn promote(&self, state: &State) -> State {
        let mut next = *state;
        next.promoted += 1;
        next.counter = state.copied;
        next.now = state.now + self.setup.gap;
        if self.setup.split_brain {
            next.old = state.counter + 1;
        }
        next
    }
}

impl Model for Failover {
    type State = State;

    fn initial(&self) -> Vec<State> {
        let state = State {
            counter: 0,
            copied: 0,
            old: 0,
            // No clock is before its start.
            now: 1 + self.setup.behind * self.setup.promotions,
            promoted: 0,
            attempts: [Attempt::default(); ATTEMPTS],
        };
        vec![state]
    }

    fn steps(&self, state: &State, take: &mut dyn FnMut(&dyn fmt::Display, State)) {
        let attempts = &state.attempts[..self.setup.attempts];
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
        let mut next = *state;
        next.copied = state.counter;
        take(&"the replica catches up", next);
        if state.now < LAST_TICK {
            let mut next = *state;
            next.now += 1;
            take(&"a tick", next);
        }
        if state.promoted < self.setup.promotions {
            take(&"the replica is promoted", self.promote(state));
        }
    }

    fn canonical(&self, state: State) -> State {
        state
    }

    fn properties(&self) -> Vec<Property> {
        vec![Property::Unique, Property::RealTime, Property::Ownership]
    }

    fn violates(&self, state: &State, property: Property) -> bool {
        let won = |at: usize| Some(state.attempts[at]).filter(|attempt| attempt.won);
        let mut pairs = (0..ATTEMPTS).flat_map(|one| (0..ATTEMPTS).map(move |other| (one, other)));
        pairs.any(|(one, other)| match (won(one), won(other)) {
            (Some(early), Some(late)) if one != other => match property {
                Property::Unique => early.token == late.token,
                Property::RealTime => late.before & 1 << one != 0 && late.token <= early.token,
                _ => late.owned_before & 1 << one != 0 && late.token <= early.token,
            },
            _ => false,
        })
    }

    fn successes(&self, state: &State) -> usize {
        set(state, |attempt| attempt.won).count_ones() as usize
    }
}

/// The attempts for which this is true, one bit for each.
fn set(state: &State, is: impl Fn(&Attempt) -> bool) -> u8 {
    let attempts = state.attempts.iter().enumerate();
    let members = attempts.filter(|(_, attempt)| is(attempt));
    members.fold(0, |all, (at, _)| all | 1 << at)
}
