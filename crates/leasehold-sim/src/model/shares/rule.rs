//! The rule that ships, its mutations, and what each of its steps must keep.

use std::time::Duration;

use leasehold_core::record::{Body, Change, Changes, End, Head, Leases, Part, QueueHead, Row};
use leasehold_core::{
    Acquire, ClientId, Environment, Holder, Mismatch, Op, Outcome, Rows, StoreTime, Token,
    TokenCount, Ttl, Waiter,
};

use super::setup::{Mutation, Shares};
use super::state::{CLIENTS, Message, Phase, Queued, Share, State};
use crate::model::core::{self, NOW, attempt, lease};
use crate::model::explore::{Property, violated};

/// How long the store keeps a grant to a waiter: the acceptance ttl.
const TICK: Duration = Duration::from_millis(leasehold_core::record::queue::ACCEPTANCE_MS);

/// How many ticks the store keeps a lease.
const TTL: u32 = 2;

/// How long the queue is kept: always.
const KEEP: Duration = Duration::from_secs(3_600);

fn ttl() -> Ttl {
    Ttl::remainder(TICK * TTL)
}

/// A token that is not in front of the clock.
fn token(number: u8) -> Token {
    let token = Token::new(NOW.as_micros() + u64::from(number));
    token.unwrap_or(Token::MAX)
}

fn number(token: Token) -> u8 {
    token.get().saturating_sub(NOW.as_micros()) as u8
}

fn end(ticks: u8) -> End {
    End::At(NOW.after_span(TICK * u32::from(ticks)))
}

fn ticks(End::At(end): End) -> u8 {
    NOW.until(end).as_millis().div_ceil(TICK.as_millis()) as u8
}

impl Shares {
    pub(super) fn op(&self, at: usize, message: Message) -> Op {
        let (lease, tokens) = (lease(at), TokenCount::MIN);
        match message {
            Message::Acquire { size } => Op::Acquire(Acquire {
                claim: self.claim(size),
                wait: true,
                ..Acquire::mutex(lease, ttl())
            }),
            Message::Renew => Op::renew(lease, ttl()),
            Message::Convert { size, first } => Op::Convert {
                lease,
                first: token(first),
                claim: self.claim(size),
                ttl: ttl(),
                tokens,
                wait: true,
            },
            Message::Release => Op::release(lease),
        }
    }

    /// The store processes a request.
    pub(super) fn process(&self, state: &mut State, at: usize, message: Message) -> Outcome {
        let before = *state;
        let mut message = message;
        if let Message::Convert { first, .. } = &mut message
            && self.has(Mutation::ConvertsAnyToken)
        {
            *first = before.shares[at].token;
        }
        let op = self.op(at, message);
        let mut outcome = self.run(state, &op);
        self.replace_step(&before, state, at, message);
        match message {
            Message::Acquire { .. } if self.has(Mutation::PastTheHead) => {
                let queue = [None; CLIENTS];
                let mut alone = State { queue, ..before };
                if matches!(self.run(&mut alone, &op), Outcome::Granted { .. }) {
                    alone.wait(before.waiters().filter(|queued| queued.client != at));
                    *state = alone;
                    outcome = Outcome::granted(Token::MAX);
                }
            }
            Message::Convert { size, .. }
                if outcome == Outcome::Mismatch(Mismatch::Conversion)
                    && self.has(Mutation::AnyWaits) =>
            {
                let queued = Queued {
                    client: at,
                    size,
                    converts: true,
                };
                state.wait([queued].into_iter().chain(state.waiters()));
                outcome = Outcome::Refused {
                    time_left: None,
                    queue_position: Some(0),
                };
            }
            _ => {}
        }
        self.mutate(&before, state, at);
        state.flaw = self.flaw(&before, state, at);
        outcome
    }

    /// Applies a mutation that changes the state of the store but not the reply.
    fn replace_step(&self, before: &State, state: &mut State, at: usize, message: Message) {
        let holds = |at: usize| before.shares[at].holds();
        match (self.mutation, message) {
            (Some(Mutation::LeavesWaiters), Message::Release) => {
                let queue = [None; CLIENTS];
                *state = State { queue, ..*before };
                self.run(state, &self.op(at, message));
                state.wait(before.waiters().filter(|queued| queued.client != at));
            }
            (Some(Mutation::EndsAnother), Message::Release) if !holds(at) => {
                let mut holders = (0..CLIENTS).filter(|other| holds(*other));
                if let Some(other) = holders.next() {
                    *state = *before;
                    self.run(state, &self.op(other, message));
                }
            }
            (Some(Mutation::RepeatRenewsToken), Message::Acquire { .. }) if holds(at) => {
                state.shares[at].token = state.last_token() + 1;
            }
            _ => {}
        }
    }

    fn run(&self, state: &mut State, op: &Op) -> Outcome {
        let mut record = self.record(state);
        let clients = state.clients;
        let reaches = |id: ClientId| {
            let mut clients = clients.iter().enumerate();
            clients.any(|(at, it)| lease(at).client == id && it.phase != Phase::Dead)
        };
        let applied = record.apply(op, &Environment::at(NOW), reaches);
        self.read(&record, state);
        applied.outcome
    }

    fn record(&self, state: &State) -> Rows {
        let mut rows = Vec::new();
        for (at, share) in state.shares.iter().enumerate().filter(|it| it.1.size > 0) {
            let holder = Holder {
                weight: self.weight(share.size),
                first: token(share.token),
                ..core::held_by(lease(at), NOW)
            };
            let end = end(share.remaining);
            let row = Row::Holder(Holder { end, ..holder });
            rows.push(Change::Put(Part::Holder(lease(at)), row));
        }
        let holders = rows.len() as u64;
        for (place, waiter) in (1..).zip(state.waiters()) {
            let lease = lease(waiter.client);
            let row = Row::Waiter(Waiter {
                lease,
                place: if waiter.converts { 0 } else { place },
                claim: self.claim(waiter.size),
                ttl: ttl(),
                tokens: TokenCount::MIN,
                condition: None,
            });
            rows.push(Change::Put(Part::Waiter(lease), row));
        }
        let leases = Leases {
            used: match self.has(Mutation::CountsHolders) {
                true => holders,
                false => state.used,
            },
            earliest: (holders > 0).then(|| end(state.earliest)),
            phase: (state.phase > 0).then(|| token(state.phase)),
            ..Leases::new(self.claim(1).kind(), self.limit())
        };
        let len = state.waiters().count() as u32;
        let head = Head {
            counter: Some(token(state.last_token())),
            body: match len > 0 || holders > 0 {
                true => Body::Leases(leases),
                false => Body::Free,
            },
            queue: QueueHead {
                len,
                next_place: CLIENTS as u64 + 1,
                until: NOW.after_span(KEEP),
            },
            revoked: None,
        };
        let mut record = Rows::default();
        record.store(Changes {
            head: Some(head),
            rows,
        });
        record
    }

    fn read(&self, record: &Rows, state: &mut State) {
        // Also the rows of holders that have ended.
        let long_ago = Environment::at(StoreTime::from_micros(0));
        state.shares = Default::default();
        for holder in record.holders(&long_ago) {
            let share = Share {
                size: self.size(holder.weight),
                token: number(holder.first),
                remaining: ticks(holder.end),
            };
            if let Some(at) = state.shares.get_mut(usize::from(attempt(holder.lease))) {
                *at = share;
            }
        }
        let places = record.waiters(&long_ago).map(|waiter| Queued {
            client: attempt(waiter.lease).into(),
            size: self.size(waiter.claim.weight()),
            converts: waiter.is_conversion(),
        });
        state.wait(places);
        let leases = match record.head().body {
            Body::Leases(leases) => Some(leases),
            _ => None,
        };
        state.used = leases.map_or(0, |leases| leases.used);
        if self.has(Mutation::CountsHolders) {
            state.used = self.held(state);
        }
        state.earliest = leases.and_then(|it| it.earliest).map_or(0, ticks);
        state.phase = leases.and_then(|it| it.phase).map_or(0, number);
    }

    /// The sum of the weights of the leases that hold.
    fn held(&self, state: &State) -> u64 {
        let holding = state.shares.iter().filter(|share| share.holds());
        holding.map(|share| self.weight(share.size)).sum()
    }

    /// Changes what a step of the rule has stored.
    fn mutate(&self, before: &State, after: &mut State, at: usize) {
        let (old, new) = (before.shares[at], after.shares[at]);
        let replace = |after: &mut State, from: u8, to: u8| {
            let tokens = after.shares.iter_mut().map(|share| &mut share.token);
            let tokens = tokens.chain([&mut after.phase]);
            tokens.filter(|it| **it == from).for_each(|it| *it = to);
        };
        let last = before.last_token();
        match self.mutation {
            Some(Mutation::TokenOfWriter) if after.phase > last && last > 0 => {
                let phase = after.phase;
                replace(after, phase, last);
            }
            Some(Mutation::TokenOfReader) => {
                for at in 0..CLIENTS {
                    let was_reading = before.shares[at].holds();
                    if self.reads(after.shares[at].size) && !was_reading {
                        after.shares[at].token = after.last_token() + 1;
                    }
                }
            }
            Some(Mutation::DowngradeKeepsToken) if old.size == 3 && self.reads(new.size) => {
                replace(after, new.token, old.token);
            }
            Some(Mutation::DowngradeRenewsToken) if (old.size, new.size) == (2, 1) => {
                after.shares[at].token = after.last_token() + 1;
            }
            Some(Mutation::EarliestStays) if before.earliest > 0 && after.used > 0 => {
                after.earliest = after.earliest.max(before.earliest);
            }
            _ => {}
        }
    }

    /// The property that a step of the store violates.
    fn flaw(&self, before: &State, after: &State, at: usize) -> Option<Property> {
        let ends = after.shares.iter().filter(|share| share.size > 0);
        let earliest = ends.map(|share| share.remaining).min();
        let is_late = earliest.is_some_and(|end| end < after.earliest || end == 0);
        let conversions = after.waiters().filter(|queued| queued.converts);
        let mut grants = (0..CLIENTS).filter(|at| {
            let is_granted = after.shares[*at].holds() && !before.shares[*at].holds();
            is_granted && self.overtakes(before, after, *at)
        });
        let others = (0..CLIENTS).filter(|other| at != *other);
        let mut changes = others.filter(|at| is_changed(before, after, *at));
        let violated = violated([
            (Property::Summed, after.used != self.held(after) || is_late),
            (Property::Conversion, conversions.count() > 1),
            (Property::Order, grants.next().is_some()),
            (Property::Own, changes.next().is_some()),
            (Property::Free, self.is_left(after, at)),
        ]);
        violated.first().copied()
    }

    /// Whether a lease was granted although another one that can be reached has waited before it, and still waits.
    fn overtakes(&self, before: &State, after: &State, at: usize) -> bool {
        let mut earlier = before.waiters().take_while(|queued| queued.client != at);
        earlier.any(|queued| {
            let mut waiting = after.waiters();
            waiting.any(|it| it.client == queued.client) && !after.is_gone(queued)
        })
    }

    /// Whether the first waiter that can be reached would fit. The store takes the requester for one that can.
    fn is_left(&self, state: &State, requester: usize) -> bool {
        let lives = |queued: &Queued| queued.client == requester || !state.is_gone(*queued);
        let mut waiters = state.waiters().filter(lives);
        waiters.next().is_some_and(|queued| {
            let own = match queued.converts {
                true => self.weight(state.shares[queued.client].size),
                false => 0,
            };
            self.weight(queued.size).saturating_sub(own)
                <= self.limit().saturating_sub(self.held(state))
        })
    }
}

/// Whether a step has changed what another lease holds, other than by granting it what it waits for.
fn is_changed(before: &State, after: &State, at: usize) -> bool {
    let (old, new) = (before.shares[at], after.shares[at]);
    let mut waiting = before.waiters();
    let is_granted = waiting.any(|queued| queued.client == at && queued.size == new.size);
    let is_same = (old.size, old.token) == (new.size, new.token) && old.remaining <= new.remaining;
    old.holds() && !is_same && !is_granted
}
