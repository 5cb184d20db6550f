//! A lock with a minimum hold: is it ever granted before its end, or kept beyond it?
//!
//! Each client acquires the lock once, waits in the queue if another has it, renews and enters its lease, and releases
//! it. The release is sent with the rest of the minimum hold, and perhaps again with what is left of it then; without
//! one if the lease was lost before. A message may take any time and run any number of times, a client may die, and an
//! operator may revoke the lease. Time passes in ticks, and the exploration has no horizon.

mod rule;
mod setup;
mod state;

use std::fmt;

use leasehold_core::Outcome;

pub(crate) use self::setup::{Mutation, Record};
use self::state::{CLIENTS, Client, Hold, Phase, State};
use super::explore::{Model, Property, Take, violated};
use super::labels::name;

impl Record {
    /// What a client does.
    fn client_steps(&self, state: &State, at: usize, take: Take<'_, State>) {
        let (client, who) = (&state.clients[at], name(at));
        match client.phase {
            Phase::Idle | Phase::Waiting => {
                let mut next = *state;
                let outcome = self.apply(&mut next, at, &self.acquire(at));
                let (phase, reply) = match outcome {
                    Outcome::Granted { .. } => (Phase::Granted, "is granted the lock"),
                    _ => (Phase::Waiting, "joins the queue"),
                };
                let client = &mut next.clients[at];
                (client.phase, client.age) = (phase, 0);
                take(&format_args!("{who} {reply}"), next);
            }
            Phase::Granted => {
                let mut next = *state;
                next.clients[at] = self.holding(*client);
                take(&format_args!("{who} receives its grant"), next);
            }
            Phase::Holding => self.holder_steps(state, at, take),
            Phase::Releasing => {
                let mut next = *state;
                next.clients[at].phase = Phase::Over;
                take(&format_args!("{who} does not repeat its release"), next);
                let next = self.released(next, at);
                take(&format_args!("{who} repeats its release"), next);
            }
            Phase::Lost => {
                let mut next = *state;
                next.clients[at].phase = Phase::CutOff;
                let rest = match self.mutation {
                    Some(Mutation::AfterLoss) => self.rest(client.age),
                    _ => 0,
                };
                next.clients[at].releases |= 1 << rest;
                take(&format_args!("{who} releases its lost lease"), next);
            }
            Phase::CutOff | Phase::Over => {}
        }
    }

    fn holder_steps(&self, state: &State, at: usize, take: Take<'_, State>) {
        let who = name(at);
        let mut next = *state;
        next.clients[at].phase = Phase::Over;
        take(&format_args!("{who} dies"), next);
        let mut next = *state;
        next.clients[at].phase = Phase::Releasing;
        let next = self.released(next, at);
        take(&format_args!("{who} sends its release"), next);
        let mut next = *state;
        next.clients[at].requests = true;
        if self.apply(&mut next, at, &self.renew(at)) == Outcome::Kept {
            next.clients[at].remaining = self.reliable_for(0);
            take(&format_args!("{who} renews its lease"), next);
        }
    }

    /// The release of a client is sent, with the rest of its minimum hold.
    fn released(&self, mut state: State, at: usize) -> State {
        let client = &mut state.clients[at];
        client.releases |= 1 << self.rest(client.age);
        state
    }

    /// The store processes a message that is late, a copy, or the first one. The reply makes no difference.
    fn message_steps(&self, state: &State, at: usize, take: Take<'_, State>) {
        let (client, who) = (&state.clients[at], name(at));
        let mut process = |label: &dyn fmt::Display, op| {
            let mut next = *state;
            self.apply(&mut next, at, &op);
            take(label, next);
        };
        if client.requests {
            let label = format_args!("a renewal of {who} is processed late");
            process(&label, self.renew(at));
            let label = format_args!("an enter of {who} is processed late");
            process(&label, self.enter(at));
        }
        for rest in (0..u16::BITS).filter(|rest| client.releases & 1 << rest != 0) {
            let label = format_args!("the release of {who} for {rest} more ticks is processed");
            process(&label, self.release(at, rest as u8));
        }
    }

    /// A client that has received its grant.
    fn holding(&self, client: Client) -> Client {
        let remaining = self.reliable_for(client.age);
        Client {
            phase: if remaining > 0 {
                Phase::Holding
            } else {
                Phase::Over
            },
            age: 0,
            remaining,
            won: remaining > 0,
            ..client
        }
    }

    /// Time passes for the store and all clients.
    fn tick(&self, state: &State) -> State {
        let mut next = *state;
        next.remaining = next.remaining.saturating_sub(1);
        if next.remaining == 0 {
            next.hold = Hold::None;
        }
        next.reserved = next.reserved.saturating_sub(1);
        next.limit = next.limit.saturating_sub(1);
        for client in &mut next.clients {
            client.since = self.min_hold.min(client.since + 1);
            self.advance(client);
        }
        next
    }

    /// Time passes for a client.
    fn advance(&self, client: &mut Client) {
        client.age = self.age_max().min(client.age + 1);
        client.remaining = client.remaining.saturating_sub(1);
        if client.phase == Phase::Holding && client.remaining == 0 {
            client.phase = Phase::Lost;
        }
    }

    /// The clock of a client is faster than that of the store.
    fn gain(&self, state: &State, at: usize, take: Take<'_, State>) {
        let client = state.clients[at];
        let timed = matches!(
            client.phase,
            Phase::Granted | Phase::Holding | Phase::Releasing
        );
        if timed && client.gained < self.gain {
            let mut next = *state;
            next.clients[at].gained += 1;
            self.advance(&mut next.clients[at]);
            take(
                &format_args!("the clock of {} gains a tick", name(at)),
                next,
            );
        }
    }
}

impl Model for Record {
    type State = State;

    fn initial(&self) -> Vec<State> {
        vec![State::new(self.revocations)]
    }

    fn steps(&self, state: &State, take: Take<'_, State>) {
        take(&"a tick", self.tick(state));
        let mut idle = false;
        for at in 0..self.clients.min(CLIENTS) {
            // The idle ones do not differ.
            if state.clients[at].phase == Phase::Idle && std::mem::replace(&mut idle, true) {
                continue;
            }
            self.client_steps(state, at, take);
            self.message_steps(state, at, take);
            self.gain(state, at, take);
        }
        if state.revocations > 0 {
            let mut next = *state;
            next.revocations -= 1;
            self.revoke(&mut next);
            take(&"an operator revokes the lease", next);
        }
    }

    fn canonical(&self, mut state: State) -> State {
        state.reduce();
        state.sorted(self.clients)
    }

    fn violations(&self, state: &State) -> Vec<Property> {
        let clients = state.clients.iter().enumerate();
        let holders = clients.clone().filter(|(_, it)| it.phase == Phase::Holding);
        let kept = matches!(state.hold, Hold::Min(_));
        let mut revived = clients.filter(|(at, it)| it.ended && state.hold == Hold::Lease(*at));
        violated([
            (Property::Exclusion, holders.count() > 1),
            (Property::Reserved, state.reserved > 0 && !kept),
            (Property::Bounded, kept && state.remaining > state.limit),
            (Property::Own, state.foreign),
            (Property::Final, revived.next().is_some()),
        ])
    }

    fn successes(&self, state: &State) -> usize {
        state.clients.iter().filter(|client| client.won).count()
    }
}
