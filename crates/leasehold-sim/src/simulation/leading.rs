//! A leader: the host of the writer of its value.

use std::time::Duration;

use leasehold_core::value_writer::{WriteAction, WriteReply};
use leasehold_core::{Instant, LeaseId, Op, Outcome, State, Token, ValueWriter};

use super::calls::{Calls, Context, Purpose};
use super::setup::Mutation;

#[derive(Debug)]
pub(super) struct Leading {
    lease: LeaseId,
    term: Token,
    writer: ValueWriter,
    /// When the value is replaced. `None`: it stays.
    replaced_at: Option<Instant>,
    /// The longest time between two values.
    interval: Duration,
}

impl Leading {
    pub(super) fn new(lease: LeaseId, term: Token, interval: Duration, now: Instant) -> Self {
        Self {
            lease,
            term,
            writer: ValueWriter::new(term, "1".into(), now),
            replaced_at: Some(now),
            interval,
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.replaced_at
            .into_iter()
            .chain(self.writer.next_timeout())
            .min()
    }

    /// The value stays from now on. Returns its number.
    pub(super) const fn keep(&mut self) -> u64 {
        self.replaced_at = None;
        self.writer.newest()
    }

    pub(super) fn poll(&mut self, state: State, calls: &mut Calls, cx: &mut Context<'_>) {
        if self.replaced_at.is_some_and(|at| at <= cx.now) {
            let next = self.writer.newest() + 1;
            self.writer.set(next.to_string().into());
            self.replaced_at = Some(cx.now.after(cx.part(self.interval)));
        }
        if let WriteAction::Write(mut note) = self.writer.poll(state, cx.now) {
            if cx.setup.has(Mutation::WritesWithoutNumber) {
                note.number = 0;
            }
            let lease = self.lease;
            calls.send(Purpose::Write, Op::WriteNote { lease, note }, cx);
        }
    }

    pub(super) fn handle_reply(&mut self, outcome: &Outcome, cx: &mut Context<'_>) {
        let reply = match outcome {
            Outcome::Stored | Outcome::Outdated => WriteReply::Stored,
            _ => WriteReply::Lost,
        };
        let written = self.writer.handle_reply(reply, cx.now);
        if let Some(number) = written.filter(|_| reply == WriteReply::Stored) {
            cx.values.store((self.term, number));
        }
    }

    pub(super) fn handle_no_reply(&mut self, cx: &Context<'_>) {
        if !cx.setup.has(Mutation::NoRepeatedWrite) {
            self.writer.handle_reply(WriteReply::Transient, cx.now);
        }
    }

    pub(super) const fn interrupted(&mut self) {
        self.writer.interrupted();
    }
}
