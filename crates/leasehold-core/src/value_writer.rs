//! The writer of a leader's value: it keeps the newest value in the store for as long as the leader leads.
//!
//! [`ValueWriter`] is a state machine without I/O. Its host writes the notes that [`ValueWriter::poll`] returns, passes
//! their replies in, and polls again after each of them, after every other call and at [`ValueWriter::next_timeout`].
//!
//! * One write is in flight at a time, that of the newest value. It is repeated until the store has replied.
//! * Each note has the number of its value, so the store refuses a late write of an earlier one.
//! * A failover can lose the value. So it is written again after each interruption, and now and then.

use std::sync::Arc;
use std::time::Duration;

use crate::contention;
use crate::election::Proclamation;
use crate::lease::state::State;
use crate::record::{NewNote, Slot};
use crate::time::Instant;
use crate::token::Token;

/// How long the store keeps a value. A value outlives its leader, and means nothing then.
const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// How often a value is written again. A failover can lose it; a broken connection, which comes with most failovers,
/// has it written immediately.
const INTERVAL: Duration = Duration::from_secs(10 * 60);

/// The writer of the value of one leader, which has its lease for itself.
#[derive(Clone, Debug)]
pub struct ValueWriter {
    token: Token,
    newest: Proclamation,
    /// The number of the value whose write is in flight.
    in_flight: Option<u64>,
    /// Whether the newest value is written as soon as no write is in flight.
    at_once: bool,
    /// When it is written next otherwise.
    due: Instant,
    /// Since when the store fails.
    failing: Option<Instant>,
}

/// What the host does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteAction {
    /// Writes this note under the lease, and passes the reply to [`ValueWriter::handle_reply`].
    Write(NewNote),
    /// Waits.
    Wait,
    /// Stops: the leader is lost, and nothing is written any longer.
    Lost,
}

/// The reply to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteReply {
    /// The value is stored.
    Stored,
    /// The store refused it: the lease does not hold the lock.
    Lost,
    /// There was no reply, or one that may be another one soon.
    Transient,
    /// The store refused it, and would refuse it again.
    Permanent,
}

impl ValueWriter {
    /// A writer for the leader of a term, with its first value.
    #[must_use]
    pub const fn new(term: Token, value: Arc<str>, now: Instant) -> Self {
        Self {
            token: term,
            newest: Proclamation { number: 1, value },
            in_flight: None,
            at_once: true,
            due: now,
            failing: None,
        }
    }

    /// Replaces the value.
    pub fn set(&mut self, value: Arc<str>) {
        self.newest.number += 1;
        self.newest.value = value;
        self.at_once = true;
    }

    /// The number of the newest value.
    #[must_use]
    pub const fn newest(&self) -> u64 {
        self.newest.number
    }

    /// The store may have lost the value: a connection broke, or the record moved. While writes fail, the retry that is due
    /// soon is the answer: a write that failed may itself have interrupted the connection.
    pub const fn interrupted(&mut self) {
        self.at_once |= self.failing.is_none() || self.in_flight.is_some();
    }

    /// Returns what the host does next, by the state of the leader at this instant.
    #[must_use]
    pub fn poll(&mut self, state: State, now: Instant) -> WriteAction {
        if state.is_lost() {
            return WriteAction::Lost;
        }
        if self.in_flight.is_some() || !self.at_once && now < self.due {
            return WriteAction::Wait;
        }
        self.in_flight = Some(self.newest.number);
        self.at_once = false;
        WriteAction::Write(NewNote {
            slot: Slot::Value,
            token: self.token,
            number: self.newest.number,
            text: self.newest.to_text().into(),
            keep: RETENTION,
        })
    }

    /// When to poll again without a reply or another call. `None`: a write is in flight.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.in_flight.is_none().then_some(self.due)
    }

    /// Processes the reply to the write in flight. Returns the number of its value if this is the result. `None`: it is
    /// repeated.
    pub fn handle_reply(&mut self, reply: WriteReply, now: Instant) -> Option<u64> {
        let number = self.in_flight.take()?;
        if reply == WriteReply::Transient {
            let since = *self.failing.get_or_insert(now);
            self.due = now.after(contention::retry_after(now.since(since)));
            // Only a newer value is written immediately: the failed write may have interrupted the connection.
            self.at_once = self.newest.number != number;
            return None;
        }
        self.failing = None;
        self.due = now.after(INTERVAL);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, token};
    use crate::lease::state::Cause;

    const HELD: State = State::Held { until: at(0) };

    fn writer() -> ValueWriter {
        ValueWriter::new(token(7), "one".into(), at(0))
    }

    /// The number and the text that are written now.
    fn written(writer: &mut ValueWriter, now: Instant) -> Option<(u64, String)> {
        match writer.poll(HELD, now) {
            WriteAction::Write(note) => Some((note.number, note.text.to_string())),
            WriteAction::Wait => None,
            WriteAction::Lost => panic!("the leader leads"),
        }
    }

    #[test]
    fn a_value_is_written_at_once_and_again_after_an_interruption_and_an_interval() {
        let mut writer = writer();
        assert_eq!(written(&mut writer, at(0)), Some((1, "1 one".to_owned())));
        assert_eq!(
            (writer.next_timeout(), written(&mut writer, at(1))),
            (None, None)
        );
        assert_eq!(writer.handle_reply(WriteReply::Stored, at(5)), Some(1));
        let next = at(5).after(INTERVAL);
        assert_eq!(writer.next_timeout(), Some(next));
        assert_eq!(
            written(&mut writer, next.before(Duration::from_nanos(1))),
            None
        );
        writer.interrupted();
        assert_eq!(written(&mut writer, at(6)).unwrap().0, 1);
        // The write in flight may be lost.
        writer.interrupted();
        writer.handle_reply(WriteReply::Stored, at(7));
        assert_eq!(written(&mut writer, at(7)).unwrap().0, 1);
        writer.handle_reply(WriteReply::Stored, at(8));
        assert_eq!(written(&mut writer, at(8)), None);
        assert_eq!(written(&mut writer, at(8).after(INTERVAL)).unwrap().0, 1);
    }

    #[test]
    fn a_value_that_is_replaced_during_its_write_is_followed_by_the_newest() {
        let mut writer = writer();
        assert_eq!(written(&mut writer, at(0)).unwrap().0, 1);
        for value in ["two", "three"] {
            writer.set(value.into());
        }
        assert_eq!((writer.newest(), written(&mut writer, at(1))), (3, None));
        assert_eq!(writer.handle_reply(WriteReply::Stored, at(2)), Some(1));
        assert_eq!(written(&mut writer, at(2)), Some((3, "3 three".to_owned())));
        assert_eq!(writer.handle_reply(WriteReply::Stored, at(3)), Some(3));
    }

    #[test]
    fn a_write_without_a_reply_is_repeated_at_growing_intervals_and_with_the_newest_value() {
        let mut writer = writer();
        let mut intervals = Vec::new();
        let mut now = at(0);
        for _ in 0..20 {
            assert_eq!(written(&mut writer, now).unwrap().0, 1);
            writer.interrupted();
            assert_eq!(writer.handle_reply(WriteReply::Transient, now), None);
            writer.interrupted();
            assert_eq!(written(&mut writer, now), None);
            let next = writer.next_timeout().unwrap();
            intervals.push(next.since(now));
            now = next;
        }
        assert!(
            intervals.is_sorted() && intervals[0] < intervals[19],
            "{intervals:?}"
        );
        writer.set("two".into());
        assert_eq!(written(&mut writer, now).unwrap().0, 2);
        assert_eq!(writer.handle_reply(WriteReply::Stored, now), Some(2));
        assert_eq!(writer.next_timeout(), Some(now.after(INTERVAL)));
    }

    #[test]
    fn a_refusal_is_the_result_and_a_leader_that_is_lost_writes_nothing() {
        for refusal in [WriteReply::Permanent, WriteReply::Lost] {
            let mut writer = writer();
            assert_eq!(written(&mut writer, at(0)).unwrap().0, 1);
            assert_eq!(writer.handle_reply(refusal, at(1)), Some(1));
            assert_eq!(writer.next_timeout(), Some(at(1).after(INTERVAL)));
            writer.set("two".into());
            let lost = State::Lost(Cause::Revoked);
            assert_eq!(writer.poll(lost, at(2)), WriteAction::Lost);
        }
    }
}
