//! The rule that ships.

use std::time::Duration;

use leasehold_core::record::Environment;
use leasehold_core::time::{self, StoreTime, Ttl};
use leasehold_core::{Acquire, Op, Outcome, Rows, Token};

use super::setup::{Documents, Mutation};
use super::state::{CLIENTS, Document, OLDEST, Phase, Reply, State, Write};
use crate::model::core;

/// The time of the document.
const TIME: StoreTime = core::NOW;

/// When the waiters joined the queue.
const BEFORE: StoreTime = StoreTime::from_micros(TIME.as_micros() - 1);

impl Documents {
    fn ttl(&self) -> Ttl {
        Ttl::remainder(self.tick * u32::from(self.ttl))
    }

    /// What a client sends next.
    pub(super) fn ops(&self, state: &State, at: usize) -> Vec<(&'static str, Op)> {
        let lease = core::lease(usize::from(state.lease(at)) - 1);
        let acquire = || ("an acquire", self.acquire(state.lease(at)));
        let release = || ("a release", Op::release(lease));
        match state.clients[at].phase {
            Phase::Waiting if self.mutation == Some(Mutation::NeverPolls) => Vec::new(),
            Phase::Idle | Phase::Waiting => vec![acquire()],
            Phase::Holding if self.renews => {
                vec![("a renewal", Op::renew(lease, self.ttl())), release()]
            }
            Phase::Holding | Phase::Releasing => vec![release()],
            Phase::Over => Vec::new(),
        }
    }

    fn acquire(&self, lease: u8) -> Op {
        Op::Acquire(Acquire {
            wait: self.queue,
            ..Acquire::mutex(core::lease(usize::from(lease) - 1), self.ttl())
        })
    }

    /// Applies the rule to a copy of the document, so many ticks after its time. Returns whether the record has changed.
    pub(super) fn run(&self, state: &State, op: &Op, moved: u8, left: Option<u8>) -> (Write, bool) {
        let mut before = state.document;
        if let Some(left) = left {
            before.remaining = before.remaining.min(moved + left);
        }
        let mut rows = self.rows(&before);
        let now = TIME.after_span(self.tick * u32::from(moved));
        let outcome = core::apply(&mut rows, op, now);
        let (hold, time_left) = core::hold(&rows, now);
        let environment = Environment::at(now);
        let mut waiters = rows.waiters(&environment);
        let counter = rows.head().counter.map_or(0, Token::get);
        let document = Document {
            hold,
            remaining: core::ticks(time_left, self.tick),
            queue: std::array::from_fn(|_| {
                let waiter = waiters.next();
                waiter.map_or(0, |waiter| core::attempt(waiter.lease) + 1)
            }),
            counter: self.since(counter.cast_signed() - now.as_micros().cast_signed()),
        };
        let granted = counter != before_counter(&before);
        let is_same = (before.hold, before.queue) == (hold, document.queue)
            && (hold == 0 || before.remaining == document.remaining + moved);
        let reply = match outcome {
            Outcome::Granted { .. } | Outcome::Kept => Reply::Held,
            Outcome::Refused { queue_position, .. } if queue_position.is_some() => Reply::Queued,
            Outcome::Refused { .. } => Reply::Refused,
            _ => Reply::Ended,
        };
        let has_moved = before.hold != hold || before.remaining != document.remaining + moved;
        let is_counted = reply == Reply::Held && self.mutation != Some(Mutation::KeptStamp);
        let write = Write {
            document,
            stamped: granted || has_moved || is_counted,
            shift: moved.cast_signed(),
            version: state.version,
            reply,
            granted,
            ..Write::default()
        };
        (write, granted || !is_same)
    }

    fn rows(&self, document: &Document) -> Rows {
        let index = usize::from(document.hold).checked_sub(1);
        // One that has ended, so that the counter is there.
        let lease = core::lease(index.unwrap_or(2 * CLIENTS));
        let end = TIME.after_span(self.tick * u32::from(document.remaining));
        let counter = Token::new(before_counter(document));
        let mut rows = Rows::held(core::held_by(lease, end), counter);
        for waiter in document.queue.into_iter().filter(|waiter| *waiter != 0) {
            core::apply(&mut rows, &self.acquire(waiter), BEFORE);
        }
        rows
    }

    /// A token that many microseconds after a time. Earlier ones make no difference, unless old writes are applied.
    pub(super) fn since(&self, micros: i64) -> i32 {
        let ticks = match self.keeps_old_writes() {
            true => self.tick * OLDEST.unsigned_abs().into(),
            false => Duration::from_micros(1),
        };
        let earliest = i32::try_from(ticks.as_micros()).map_or(i32::MIN, |micros| -micros);
        i32::try_from(micros).map_or(earliest, |micros| micros.max(earliest))
    }

    /// The same token for a time so many ticks later.
    pub(super) fn shifted(&self, token: i32, ticks: i8) -> i32 {
        let tick = i64::try_from(self.tick.as_micros()).unwrap_or(i64::MAX);
        self.since(i64::from(token) - i64::from(ticks) * tick)
    }

    /// The counter of a document that has none.
    pub(super) fn no_counter(&self) -> i32 {
        self.since(i64::MIN)
    }

    pub(super) fn keeps_old_writes(&self) -> bool {
        self.repeated_versions > 0 || self.unconditional
    }

    /// For how many ticks a lease can be relied on whose request ran `age` ticks ago: not before it was sent.
    pub(super) fn reliable_for(&self, age: u8) -> u8 {
        let (sent, now) = core::instants(self.tick * u32::from(age));
        let deadline = match self.mutation {
            Some(Mutation::FromReply) => time::deadline(now, self.ttl()),
            Some(Mutation::WithoutDrift) => sent.after(self.ttl().as_duration()),
            _ => time::deadline(sent, self.ttl()),
        };
        core::ticks(now.until(deadline), self.tick)
    }

    /// The same for a grant of `age` ticks ago whose notice arrives now.
    pub(super) fn accepted_for(&self, age: u8, misdated: bool) -> u8 {
        let age = self.tick * u32::from(age);
        let (sent, now) = core::instants(age);
        let waited = if misdated { age } else { Duration::ZERO };
        let (_, deadline) = time::granted(sent, waited, now, self.ttl());
        core::ticks(now.until(deadline), self.tick)
    }
}

/// The counter of a document, as the rule reads it.
fn before_counter(document: &Document) -> u64 {
    TIME.as_micros()
        .saturating_add_signed(document.counter.into())
}
