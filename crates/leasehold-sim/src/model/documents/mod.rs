//! A lock in a document of a store that compares and swaps, without a clock: is it ever held twice, or never granted again?
//!
//! A client applies the rule to a copy of the document, at the time of that and the ticks since the client received the version
//! first. The copy is sent as a write, which the store applies if the version is still there, at any later moment even if the
//! client does not wait for the reply. A client that has its reply, or the notice of a grant to a waiter, relies on the lock
//! until its deadline. It may stop at any step, and a reply or a notice may be lost. While nobody holds or waits, the wall clock
//! may move the time on. At the start there is no document, or one that a dead client holds. Time passes in ticks, and the
//! exploration has no horizon.
//!
//! The requests of holders and waiters are always written, since their clients count from them. The document says from which
//! write the client of its holder counts. While that is the same one, the lease ends when the first version that a client has
//! received said so: clients that ask in turn would otherwise begin the count of a dead holder anew each time.
//!
//! A write of an earlier version is never applied, so it is removed. Tokens that are behind the time of the document are all the
//! same. A tick more than the ttl makes no difference.

mod rule;
mod setup;
mod state;

use std::fmt;

use leasehold_core::Op;

pub(crate) use self::setup::{Documents, Mutation};
use self::state::{CLIENTS, Client, Document, LIVING, OLDEST, Phase, Reply, State, Write};
use super::explore::{Model, Property, Take, violated};
use super::labels::name;

impl Documents {
    /// What a client does, and what the store does with its writes.
    fn client_steps(&self, state: &State, at: usize, take: Take<'_, State>) {
        let (client, who) = (state.clients[at], name(at));
        let mut step = |label: fmt::Arguments<'_>, change: &dyn Fn(&mut State)| {
            let mut next = *state;
            change(&mut next);
            take(&label, next);
        };
        match client.request {
            Some(write) => {
                if write.applied {
                    step(format_args!("{who} receives the reply"), &|next| {
                        self.receive(&mut next.clients[at], &write);
                    });
                } else if self.matches(state, &write) {
                    step(format_args!("the write of {who} is applied"), &|next| {
                        self.apply_request(next, at, write);
                    });
                }
                step(format_args!("{who} gives up its request"), &|next| {
                    let document = next.document;
                    self.keep_end(&mut next.clients[at], &document);
                    self.give_up(&mut next.clients[at]);
                });
            }
            None => {
                if Self::reads(&client) {
                    step(format_args!("{who} reads the document"), &|next| {
                        self.read(next, at);
                    });
                }
                for (request, op) in self.ops(state, at) {
                    let elapsed = client.seen.unwrap_or_default();
                    let jumps = [0, self.ttl].into_iter();
                    let jumps = jumps.filter(|jump| *jump == 0 || self.may_jump(state, elapsed));
                    for jump in jumps.filter(|_| client.seen.is_some()) {
                        step(
                            format_args!("{who} sends {request}, {jump} ticks on"),
                            &|next| self.send(next, at, &op, jump),
                        );
                    }
                }
                if let Some(age) = client.notice {
                    step(format_args!("{who} receives its grant"), &|next| {
                        let remaining = self.accepted_for(age, client.misdated);
                        next.clients[at].notice = None;
                        next.clients[at].hold(remaining);
                    });
                }
                let by_wall = self.mutation == Some(Mutation::RemovedByWall);
                let is_unused = |elapsed| state.document.is_used(elapsed) == (false, false);
                let removes = client
                    .seen
                    .is_some_and(|elapsed| by_wall || is_unused(elapsed));
                if removes && !state.absent && state.removals > 0 {
                    step(format_args!("{who} removes the document"), &|next| {
                        self.remove(next);
                    });
                }
            }
        }
        if let Some(write) = client.late.filter(|write| self.matches(state, write)) {
            step(format_args!("a late write of {who} is applied"), &|next| {
                next.clients[at].late = None;
                self.apply(next, at, &write);
            });
        }
    }

    /// Whether a read makes a difference.
    fn reads(client: &Client) -> bool {
        client.phase != Phase::Over && client.seen.is_none()
    }

    fn read(&self, state: &mut State, at: usize) {
        let client = &mut state.clients[at];
        let age = match self.mutation {
            Some(Mutation::OlderAge) => self.ttl.min(state.age + 1),
            _ if self.ages => state.age,
            _ => 0,
        };
        client.seen = Some(age);
    }

    /// Keeps what the version that a client has received says of the end of the holder.
    fn keep_end(&self, client: &mut Client, document: &Document) {
        if self.mutation != Some(Mutation::LastVersion) {
            let seen = client
                .seen
                .map(|seen| document.remaining.saturating_sub(seen));
            client.left = seen.into_iter().chain(client.left).min();
        }
    }

    /// Whether the wall clock may move the time on.
    fn may_jump(&self, state: &State, elapsed: u8) -> bool {
        match (self.mutation, state.document.is_used(elapsed)) {
            (_, (false, false)) | (Some(Mutation::WallWhileHeld), _) => true,
            (mutation, (is_held, _)) => mutation == Some(Mutation::WallWhileWaiting) && !is_held,
        }
    }

    /// A client runs a request, and sends its write.
    fn send(&self, state: &mut State, at: usize, op: &Op, jump: u8) {
        let elapsed = state.clients[at].seen.unwrap_or_default();
        // Nothing else is known of the time of a name that has no document: its wall clock is not behind the last token.
        let moved = elapsed + jump + u8::from(state.absent);
        let (mut write, has_changed) = self.run(state, op, moved, state.clients[at].left);
        write.jumped = jump > 0;
        let is_written = has_changed
            || match write.reply {
                Reply::Held => self.mutation != Some(Mutation::UnwrittenHold),
                Reply::Queued => self.mutation != Some(Mutation::UnwrittenWait),
                Reply::Refused | Reply::Ended => false,
            };
        let is_behind = state.clients.iter().any(|other| other.seen > Some(elapsed));
        let is_misdated = !is_written && is_behind;
        let client = &mut state.clients[at];
        (client.notice, client.misdated) = (None, is_misdated);
        if let Op::Release { .. } = op {
            (client.phase, client.remaining) = (Phase::Releasing, 0);
        }
        match is_written {
            true => client.request = Some(write),
            false => self.receive(client, &write),
        }
    }

    /// Whether the store applies a write.
    fn matches(&self, state: &State, write: &Write) -> bool {
        write.version == state.version || self.unconditional
    }

    /// The store applies a write whose client waits for the reply.
    fn apply_request(&self, state: &mut State, at: usize, write: Write) {
        self.apply(state, at, &write);
        let client = &mut state.clients[at];
        client.seen = Some(write.age);
        client.request = Some(Write {
            applied: true,
            ..write
        });
    }

    /// The store applies the write of a client.
    fn apply(&self, state: &mut State, by: usize, write: &Write) {
        let (before, document) = (state.document.hold, write.document);
        self.outdate(state, write.shift);
        if write.stamped {
            for client in &mut state.clients {
                client.left = None;
            }
        }
        let has_other = document.hold != 0 && document.hold != before;
        if write.granted || has_other {
            state.reordered |= document.counter <= state.highest;
            state.highest = state.highest.max(document.counter);
        }
        // The reply is the grant of the client itself.
        for at in (0..CLIENTS).filter(|at| *at != by) {
            let is_granted = has_other && document.hold == state.lease(at);
            let client = &mut state.clients[at];
            if is_granted && client.phase == Phase::Waiting && client.request.is_none() {
                client.notice = Some(write.age);
                client.misdated |= write.jumped;
            }
        }
        state.version = self.repeated_versions.min(state.version + 1);
        (state.document, state.absent, state.age) = (document, false, write.age);
    }

    /// Another version of the document replaces this one, so many ticks later.
    fn outdate(&self, state: &mut State, shift: i8) {
        state.highest = self.shifted(state.highest, shift);
        let document = state.document;
        for client in &mut state.clients {
            self.keep_end(client, &document);
            if self.mutation != Some(Mutation::OtherVersion) {
                client.seen = None;
            }
            let later = |write: Write, may_match| {
                let shift = write.shift.saturating_sub(shift).max(-OLDEST);
                (write.applied || may_match).then_some(Write { shift, ..write })
            };
            let request = client.request;
            client.request = request.and_then(|write| later(write, self.unconditional));
            let late = client.late;
            client.late =
                late.and_then(|write| later(write, write.version < self.repeated_versions));
        }
    }

    /// The document is removed.
    fn remove(&self, state: &mut State) {
        self.outdate(state, 0);
        let counter = self.no_counter();
        state.document = Document {
            counter,
            ..Document::default()
        };
        (state.absent, state.version, state.age) = (true, 0, 0);
        state.removals -= 1;
    }

    /// A client receives the reply to its request.
    fn receive(&self, client: &mut Client, write: &Write) {
        client.request = None;
        match (client.phase, write.reply) {
            (Phase::Releasing, Reply::Held | Reply::Queued) | (_, Reply::Refused) => {}
            (_, Reply::Held) => client.hold(self.reliable_for(write.age).max(client.remaining)),
            (_, Reply::Queued) => client.phase = Phase::Waiting,
            (_, Reply::Ended) => client.phase = Phase::Over,
        }
    }

    /// A client has no reply. Its write may be applied later. If it is, the client does not know the document.
    fn give_up(&self, client: &mut Client) {
        match client.request.take() {
            Some(write) if !write.applied => client.late = Some(write),
            Some(_) => client.seen = None,
            None => {}
        }
        if self.mutation == Some(Mutation::OtherLease) && client.phase == Phase::Idle {
            client.number = 1;
        }
    }

    /// Time passes for all clients.
    fn tick(&self, state: &State) -> State {
        let mut next = *state;
        next.age = self.ttl.min(next.age + 1);
        for client in &mut next.clients {
            self.advance(client);
        }
        next
    }

    /// Time passes for a client.
    fn advance(&self, client: &mut Client) {
        let writes = [&mut client.request, &mut client.late]
            .into_iter()
            .flatten();
        let ages = writes.map(|write| &mut write.age);
        client.left = client.left.map(|left| left.saturating_sub(1));
        let times = [&mut client.seen, &mut client.notice];
        for time in ages.chain(times.into_iter().flatten()) {
            *time = self.ttl.min(*time + 1);
        }
        client.remaining = client.remaining.saturating_sub(1);
        if client.phase == Phase::Holding && client.remaining == 0 {
            self.give_up(client);
            client.phase = Phase::Over;
        }
    }

    /// Whether one of these clients acquires the lock in time while they ask in turn, one in a tick, and no other does anything.
    fn acquires(&self, state: &State, clients: &[usize]) -> bool {
        let mut state = *state;
        // A notice may be lost.
        for client in &mut state.clients {
            client.notice = None;
        }
        let turns = clients.len();
        let ticks = state.document.others(clients) * (usize::from(self.ttl) + 2 * turns);
        for at in clients.iter().copied().cycle().take(turns + ticks) {
            if Self::reads(&state.clients[at]) {
                self.read(&mut state, at);
            }
            for (_, op) in self.ops(&state, at) {
                self.send(&mut state, at, &op, 0);
            }
            if let Some(write) = state.clients[at].request {
                self.apply_request(&mut state, at, write);
                self.receive(&mut state.clients[at], &write);
            }
            let mut asking = clients.iter().map(|at| &state.clients[*at]);
            if asking.any(|client| client.phase == Phase::Holding || client.notice.is_some()) {
                return true;
            }
            state = self.tick(&state);
        }
        false
    }

    /// Whether a client never acquires the lock if no other does anything, or if those that want it ask in turn.
    fn is_stuck(&self, state: &State) -> bool {
        let clients = &state.clients[..LIVING];
        let is_quiet = |client: &Client| client.request.is_none() && client.remaining == 0;
        let asks = |at: &usize| matches!(clients[*at].phase, Phase::Idle | Phase::Waiting);
        let asking: Vec<_> = (0..LIVING).filter(asks).collect();
        let mut groups = asking.chunks(1).chain([&*asking]);
        clients.iter().all(is_quiet)
            && groups.any(|group| !group.is_empty() && !self.acquires(state, group))
    }

    /// Of tokens that are ahead of the time by parts of a tick, only the order makes a difference.
    fn reduce_tokens(&self, state: &mut State) {
        let ahead = state.document.counter;
        if ahead <= 0 || u128::from(ahead.unsigned_abs()) >= self.tick.as_micros() {
            return;
        }
        let writes = state
            .clients
            .iter_mut()
            .flat_map(|client| [&mut client.request, &mut client.late]);
        let writes = writes.flatten().filter(|write| write.shift == 0);
        let counters = writes.map(|write| &mut write.document.counter);
        let tokens = [&mut state.highest, &mut state.document.counter];
        for token in counters.chain(tokens) {
            *token = self.since(i64::from(*token) - i64::from(ahead));
        }
    }

    /// Removes what no step and no property can use.
    fn reduce(&self, state: &mut State) {
        state.age *= u8::from(self.ages);
        self.reduce_tokens(state);
        // Two old writes would be too many states. A lost one is as one that is never applied.
        let late = state.clients.iter().filter(|client| client.late.is_some());
        let forgets = self.keeps_old_writes() && late.count() > 1;
        let (remaining, is_held) = (state.document.remaining, state.document.hold != 0);
        for client in &mut state.clients {
            if client.phase == Phase::Over {
                client.seen = None;
            }
            // The version that it has received may say the same, or less.
            let says = client.seen.map(|seen| remaining.saturating_sub(seen));
            let is_needed = client.phase != Phase::Over && is_held;
            let left = client.left.filter(|_| is_needed);
            client.left = left.filter(|left| says.is_none_or(|says| *left < says));
            if client.phase != Phase::Waiting {
                (client.notice, client.misdated) = (None, false);
            }
            if let Some(write) = client.request.as_mut().filter(|write| write.applied) {
                let (age, reply) = (write.age, write.reply);
                *write = Write {
                    age,
                    reply,
                    applied: true,
                    ..Write::default()
                };
            }
            client.late = client.late.filter(|_| !forgets);
            if let Some(write) = &mut client.late {
                write.age *= u8::from(self.ages);
                write.reply = Reply::default();
            }
        }
    }
}

impl Client {
    fn hold(&mut self, remaining: u8) {
        self.remaining = remaining;
        self.won |= remaining > 0;
        self.phase = match remaining {
            0 => Phase::Over,
            _ => Phase::Holding,
        };
    }
}

impl Model for Documents {
    type State = State;

    fn initial(&self) -> Vec<State> {
        let counter = self.no_counter();
        let document = |hold, remaining| Document {
            hold,
            remaining,
            counter,
            ..Document::default()
        };
        let state = |document, absent| State {
            document,
            absent,
            version: 0,
            age: 0,
            highest: counter,
            reordered: false,
            gained: 0,
            removals: self.removals,
            clients: Default::default(),
        };
        let died = state(document(CLIENTS as u8, self.ttl), false);
        vec![state(document(0, 0), true), died]
    }

    fn steps(&self, state: &State, take: Take<'_, State>) {
        take(&"a tick", self.tick(state));
        for at in 0..LIVING {
            self.client_steps(state, at, take);
            if state.gained < self.gain {
                let mut next = *state;
                next.gained += 1;
                self.advance(&mut next.clients[at]);
                let step = format_args!("the clock of {} gains a tick", name(at));
                take(&step, next);
            }
        }
    }

    fn canonical(&self, mut state: State) -> State {
        self.reduce(&mut state);
        state.min(state.swapped())
    }

    fn violations(&self, state: &State) -> Vec<Property> {
        let relies = |client: &&Client| client.phase == Phase::Holding;
        let holders = state.clients.iter().filter(relies).count();
        violated([
            (Property::Exclusion, holders > 1),
            (Property::Ownership, state.reordered),
            (Property::Free, self.is_stuck(state)),
        ])
    }

    fn successes(&self, state: &State) -> usize {
        state.clients.iter().filter(|client| client.won).count()
    }
}

#[cfg(test)]
mod tests;
