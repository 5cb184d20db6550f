//! Clients that run a job once: are there ever two completed runs?
//!
//! A client reads the completion record, acquires the lock, reads the record again, works, writes the record as the
//! holder, and releases the lock. A lease may expire at any moment. A message may take any time, be lost or run twice.
//! So the properties hold whatever the clocks do.

use std::fmt;

use leasehold_core::time::{StoreTime, Ttl};
use leasehold_core::token::Token;
use leasehold_core::{NewNote, Op, Outcome, Slot};

use super::core;
use super::explore::{Model, Property};
use super::labels::name;

/// How many clients there are.
const CLIENTS: usize = 3;

const NOW: StoreTime = StoreTime::from_micros(0);

/// Any ttl, since no step waits for its end.
const TTL: Ttl = Ttl::USER_MIN;

/// A lock, its completion record, and the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    /// The rule that is changed.
    pub(crate) mutation: Option<Mutation>,
}

/// A rule that is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// The store writes the record whatever lease holds the lock.
    CompletesUnheld,
    /// A client does not read the record again when it holds the lock.
    ReadsOnlyBefore,
}

/// A state: the lock, the record, and the clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The client that holds the lock, from 1. 0: none.
    holder: u8,
    /// The client that wrote the record, from 1. 0: none.
    record: u8,
    clients: [Client; CLIENTS],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    phase: Phase,
    /// Whether its request to write the record may reach the store, once more or for the first time.
    writes: bool,
    /// Whether the store has written its record.
    completed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Idle,
    /// It has read that no run is complete.
    Waiting,
    /// It has received a grant.
    Granted,
    Working,
    Completing,
    /// It knows that a run is complete.
    Complete,
    /// It was lost.
    Lost,
}

impl State {
    fn with(mut self, at: usize, phase: Phase) -> Self {
        self.clients[at].phase = phase;
        self
    }

    /// Applies the rule.
    fn apply(&mut self, op: &Op) -> Outcome {
        let holder = usize::from(self.holder).checked_sub(1);
        let mut record = core::record(holder.map(core::lease), NOW.after(TTL));
        let outcome = core::apply(&mut record, op, NOW);
        (self.holder, _) = core::hold(&record, NOW);
        outcome
    }

    /// What a client does that reads the record.
    fn read(self, at: usize, otherwise: Phase) -> Self {
        match self.record {
            0 => self.with(at, otherwise),
            _ => self.with(at, Phase::Complete).released(at),
        }
    }

    /// The release of a client. It changes nothing if its lease has ended.
    fn released(mut self, at: usize) -> Self {
        self.apply(&Op::release(core::lease(at)));
        self
    }

    /// The store processes the request of a client to write the record. Returns whether it was written.
    fn write(&mut self, at: usize, mutation: Option<Mutation>) -> bool {
        let note = NewNote {
            slot: Slot::Period,
            token: Token::MAX,
            number: 1,
            text: "".into(),
            keep: TTL.as_duration(),
        };
        let lease = core::lease(at);
        let holder = self.holder;
        if mutation == Some(Mutation::CompletesUnheld) {
            self.holder = at as u8 + 1;
        }
        let is_written = self.apply(&Op::WriteNote { lease, note }) == Outcome::Stored;
        self.holder = holder;
        if is_written {
            self.record = at as u8 + 1;
            self.clients[at].completed = true;
        }
        is_written
    }
}

impl Completion {
    fn client_steps(
        &self,
        state: &State,
        at: usize,
        take: &mut dyn FnMut(&dyn fmt::Display, State),
    ) {
        let (state, who) = (*state, name(at));
        match state.clients[at].phase {
            Phase::Idle => {
                let next = state.read(at, Phase::Waiting);
                take(&format_args!("{who} reads the record"), next);
            }
            Phase::Waiting => {
                let mut next = state.with(at, Phase::Granted);
                let acquire = core::acquire(at, TTL, None);
                if matches!(next.apply(&acquire), Outcome::Granted { .. }) {
                    take(&format_args!("{who} is granted the lock"), next);
                }
            }
            Phase::Granted => {
                let next = match self.mutation {
                    Some(Mutation::ReadsOnlyBefore) => state.with(at, Phase::Working),
                    _ => state.read(at, Phase::Working),
                };
                take(&format_args!("{who} reads the record under the lock"), next);
            }
            Phase::Working => {
                let mut next = state.with(at, Phase::Completing);
                next.clients[at].writes = true;
                take(&format_args!("{who} sends its completion"), next);
            }
            Phase::Completing | Phase::Complete | Phase::Lost => {}
        }
    }

    /// The store processes a request that is late, a copy, or the first one.
    fn write_steps(
        &self,
        state: &State,
        at: usize,
        take: &mut dyn FnMut(&dyn fmt::Display, State),
    ) {
        if !state.clients[at].writes {
            return;
        }
        let (mut next, who) = (*state, name(at));
        let written = next.write(at, self.mutation);
        take(&format_args!("the completion of {who} is processed"), next);
        if next.clients[at].phase == Phase::Completing {
            next = match written {
                true => next.with(at, Phase::Complete).released(at),
                false => next.with(at, Phase::Lost),
            };
            take(&format_args!("{who} receives the reply to it"), next);
        }
        let mut next = *state;
        next.clients[at].writes = false;
        take(&format_args!("the completion of {who} is lost"), next);
    }
}

impl Model for Completion {
    type State = State;

    fn initial(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn steps(&self, state: &State, take: &mut dyn FnMut(&dyn fmt::Display, State)) {
        for at in 0..CLIENTS {
            self.client_steps(state, at, take);
            self.write_steps(state, at, take);
        }
        if state.holder != 0 {
            take(
                &"the lease expires",
                State {
                    holder: 0,
                    ..*state
                },
            );
        }
    }

    fn violations(&self, state: &State) -> Vec<Property> {
        let completed = state.clients.iter().filter(|client| client.completed);
        let twice = (completed.count() > 1).then_some(Property::Once);
        twice.into_iter().collect()
    }

    fn successes(&self, state: &State) -> usize {
        let complete = |client: &&Client| client.phase == Phase::Complete;
        state.clients.iter().filter(complete).count()
    }
}
