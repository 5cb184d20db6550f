//! Clients that share a lock: readers, upgradable readers and writers, or permits of a semaphore. Do those that rely on it
//! ever have more than its limit? Does a waiter ever wait without need? Do the tokens tell who is late?
//!
//! Each client acquires once, perhaps waits in the queue, renews, converts what it holds again and again, and releases it.
//! It may die at any moment. A message may be processed twice, late, or without a reply. Time passes in ticks, and the
//! exploration has no horizon.

mod rule;
mod setup;
mod state;

use leasehold_core::Outcome;

use self::setup::PERMITS;
pub(crate) use self::setup::{Mutation, Shares};
use self::state::{CLIENTS, Client, Message, Phase, State};
use super::explore::{Model, Property, Take, violated};
use super::labels::name;

impl Shares {
    fn client_steps(&self, state: &State, at: usize, take: Take<'_, State>) {
        let client = state.clients[at];
        match client.phase {
            Phase::Idle => {
                let mut next = *state;
                let size = self.sizes[at];
                (next.clients[at].phase, next.clients[at].wanted) = (Phase::Waiting, size);
                self.send(&next, at, Message::Acquire { size }, take);
            }
            Phase::Waiting => {
                let size = client.wanted;
                self.send(state, at, Message::Acquire { size }, take);
                if state.shares[at].holds() {
                    let mut next = *state;
                    self.hold(&mut next, at);
                    take(&format_args!("{} receives its grant", name(at)), next);
                }
            }
            Phase::Holding => {
                self.send(state, at, Message::Renew, take);
                let sizes = 1..=PERMITS;
                for size in sizes.filter(|size| self.converts(client.relies, *size)) {
                    let mut next = *state;
                    self.begin_conversion(&mut next.clients[at], size);
                    let first = client.token;
                    self.send(&next, at, Message::Convert { size, first }, take);
                }
                let mut next = *state;
                self.stop(&mut next, at, Phase::Over);
                self.send(&next, at, Message::Release, take);
            }
            Phase::Converting => {
                self.send(state, at, Message::Renew, take);
                let (size, first) = (client.wanted, client.token);
                self.send(state, at, Message::Convert { size, first }, take);
            }
            Phase::Over | Phase::Dead => return,
        }
        let mut next = *state;
        self.stop(&mut next, at, Phase::Dead);
        take(&format_args!("{} dies", name(at)), next);
    }

    /// Whether a client asks for this instead of what it has. No reader asks for an upgradable lease: its token would be the
    /// same, so a late downgrade to the reader would take that away.
    fn converts(&self, from: u8, to: u8) -> bool {
        from != to && (self.counts || (from, to) != (1, 2))
    }

    /// A client asks for something else, and relies on what it has and will have both.
    fn begin_conversion(&self, client: &mut Client, size: u8) {
        if self.is_writer(client.relies) {
            client.written = client.token;
        }
        client.phase = Phase::Converting;
        client.wanted = size;
        client.relies = client.relies.min(size);
    }

    /// A request is processed, and its reply received, or not. Or it is processed again later.
    fn send(&self, state: &State, at: usize, message: Message, take: Take<'_, State>) {
        let who = name(at);
        let mut next = *state;
        let outcome = self.process(&mut next, at, message);
        let unknown = next;
        self.receive(&mut next, at, message, &outcome);
        take(&format_args!("{who} sends {message:?}"), next);
        if let Some(faults) = state.faults.checked_sub(1) {
            let lost = State { faults, ..unknown };
            let step = format_args!("{who} sends {message:?}, without a reply");
            take(&step, lost);
            let copy = Some((at, message));
            let late = State {
                faults,
                copy,
                ..next
            };
            if state.copy.is_none() {
                take(&format_args!("{who} sends {message:?} twice"), late);
            }
        }
    }

    fn receive(&self, state: &mut State, at: usize, message: Message, outcome: &Outcome) {
        match (message, outcome) {
            (Message::Acquire { .. } | Message::Convert { .. }, Outcome::Granted { .. }) => {
                self.hold(state, at);
            }
            (Message::Renew, Outcome::Kept) => {
                state.clients[at].remaining = state.shares[at].remaining;
            }
            (_, Outcome::Refused { .. }) | (Message::Release, _) => {}
            _ => self.stop(state, at, Phase::Over),
        }
    }

    /// A client relies on what the store has granted to it.
    fn hold(&self, state: &mut State, at: usize) {
        let share = state.shares[at];
        let client = &mut state.clients[at];
        *client = Client {
            phase: Phase::Holding,
            relies: share.size,
            wanted: 0,
            token: share.token,
            remaining: share.remaining,
            won: true,
            ..*client
        };
    }

    fn stop(&self, state: &mut State, at: usize, phase: Phase) {
        let client = &mut state.clients[at];
        let is_writer = client.phase == Phase::Holding && self.is_writer(client.relies);
        client.stop(phase, is_writer);
    }

    const fn is_writer(&self, size: u8) -> bool {
        !self.counts && size == 3
    }

    /// Time passes for the store and all clients.
    fn tick(&self, state: &State) -> State {
        let mut next = *state;
        next.earliest = next.earliest.saturating_sub(1);
        for at in 0..CLIENTS {
            let share = &mut next.shares[at].remaining;
            *share = share.saturating_sub(1);
            let client = &mut next.clients[at];
            client.remaining = client.remaining.saturating_sub(1);
            if client.relies > 0 && client.remaining == 0 {
                self.stop(&mut next, at, Phase::Over);
            }
        }
        next
    }

    /// Whether there are two clients of which the first holds, and this is true.
    fn has_pair(state: &State, is_bad: impl Fn(&Client, &Client) -> bool) -> bool {
        let holds = |at: usize| state.clients[at].phase == Phase::Holding;
        let mut holders = (0..CLIENTS).filter(|at| holds(*at));
        holders.any(|at| {
            let mut others = (0..CLIENTS).filter(|other| *other != at);
            others.any(|other| is_bad(&state.clients[at], &state.clients[other]))
        })
    }

    /// Whether a resource that refuses smaller tokens would accept what is late.
    fn is_unfenced(&self, holder: &Client, other: &Client) -> bool {
        let is_late = |token: u8| token >= holder.token;
        let reads_late = self.is_writer(holder.relies) && is_late(other.read);
        !self.counts && (is_late(other.written) || reads_late)
    }

    /// Whether readers that hold have different tokens, or holders of permits the same one.
    fn has_wrong_token(&self, one: &Client, other: &Client) -> bool {
        other.phase == Phase::Holding && (one.token == other.token) == self.counts
    }
}

impl Model for Shares {
    type State = State;

    fn initial(&self) -> Vec<State> {
        vec![State {
            faults: self.faults,
            ..State::default()
        }]
    }

    fn steps(&self, state: &State, take: Take<'_, State>) {
        if state.flaw.is_some() {
            return;
        }
        take(&"a tick", self.tick(state));
        for at in 0..CLIENTS {
            self.client_steps(state, at, take);
        }
        if let Some((at, message)) = state.copy {
            let mut next = State {
                copy: None,
                ..*state
            };
            self.process(&mut next, at, message);
            let who = name(at);
            let step = format_args!("{message:?} of {who} is processed late");
            take(&step, next);
        }
    }

    fn canonical(&self, mut state: State) -> State {
        state.reduce();
        state
    }

    fn violations(&self, state: &State) -> Vec<Property> {
        let unfenced = |one: &Client, other: &Client| self.is_unfenced(one, other);
        let wrong = |one: &Client, other: &Client| self.has_wrong_token(one, other);
        let relied = state.clients.iter().map(|it| self.weight(it.relies));
        let violated = violated([
            (Property::Exclusion, relied.sum::<u64>() > self.limit()),
            (Property::Fenced, Self::has_pair(state, unfenced)),
            (Property::Phase, Self::has_pair(state, wrong)),
        ]);
        violated.into_iter().chain(state.flaw).collect()
    }

    fn successes(&self, state: &State) -> usize {
        state.clients.iter().filter(|client| client.won).count()
    }
}
