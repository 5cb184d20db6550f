//! The writer of one note under a hold.
//!
//! [`NoteWriter`] is a state machine without I/O. Its host sends the operations that [`NoteWriter::poll`] returns, passes
//! each reply in that does not write the note, and polls again after each of them, after a change of a state, and at the
//! time that it returned.
//!
//! While the hold lasts, an attempt writes the note. After its loss, an attempt without a reply may have written it. A
//! release with the note shows that: the store replies to it as if the release had written the note.

use crate::contention;
use crate::id::LeaseId;
use crate::lease::state::{Cause, State};
use crate::record::{NewNote, Op};
use crate::time::Instant;

/// The writer of one note.
#[derive(Clone, Debug)]
pub struct NoteWriter {
    lease: LeaseId,
    note: NewNote,
    begun: Instant,
    /// When the next attempt is due.
    due: Instant,
    /// Whether an attempt may have been applied, or may still be.
    is_unknown: bool,
    /// Why the hold was lost, and when its lease has expired in the store.
    lost: Option<(Cause, Instant)>,
}

/// What the host does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoteAction {
    /// Sends this operation. The note is written if the outcome is `Stored`, `Outdated` or `Released`.
    Send(Op),
    /// Waits until then, or until a state changes.
    Wait(Instant),
    /// Stops: the hold was lost, and the note is not known to be written.
    Lost(Cause),
}

/// The reply to an operation that has not written the note, and would not be refused for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteReply {
    /// The lease does not hold the lock. The host must let it be lost.
    Lost,
    /// The operation was not applied.
    Rejected,
    /// There was no reply.
    Unknown,
}

impl NoteWriter {
    /// A writer of a note of a lease.
    #[must_use]
    pub const fn new(lease: LeaseId, note: NewNote, now: Instant) -> Self {
        Self {
            lease,
            note,
            begun: now,
            due: now,
            is_unknown: false,
            lost: None,
        }
    }

    /// Returns what the host does next, by the states of the hold and of its lease at this instant. The lease has expired
    /// in the store at `expires`.
    #[must_use]
    pub fn poll(
        &mut self,
        (hold, lease): (State, State),
        expires: Instant,
        now: Instant,
    ) -> NoteAction {
        if let (State::Lost(cause), None) = (hold, self.lost) {
            // If other holds keep the lease, it must not be released.
            self.is_unknown &= lease.is_lost();
            self.lost = Some((cause, expires));
            self.due = now;
        }
        if let Some((cause, expires)) = self.lost
            && (!self.is_unknown || now >= expires)
        {
            return NoteAction::Lost(cause);
        }
        if now < self.due {
            return NoteAction::Wait(self.due);
        }
        let (lease, note) = (self.lease, self.note.clone());
        NoteAction::Send(match self.lost {
            None => Op::WriteNote { lease, note },
            Some(_) => Op::Release {
                lease,
                rest: None,
                note: Some(note),
            },
        })
    }

    /// Processes a reply to the last operation that has not written the note.
    pub fn handle_reply(&mut self, reply: NoteReply, now: Instant) {
        match reply {
            NoteReply::Lost => {
                self.is_unknown &= self.lost.is_none();
                return;
            }
            NoteReply::Rejected => {}
            NoteReply::Unknown => self.is_unknown = true,
        }
        self.due = now.after(contention::retry_after(now.since(self.begun)));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fixture::{at, lease};
    use crate::record::Slot;
    use crate::token::Token;

    const HELD: State = State::Held { until: at(0) };
    const LOST: State = State::Lost(Cause::Unreachable);
    const EXPIRES: Instant = at(60_000);

    fn writer() -> NoteWriter {
        let note = NewNote {
            slot: Slot::Period,
            token: Token::MAX,
            number: 1,
            text: "complete".into(),
            keep: Duration::from_secs(1),
        };
        NoteWriter::new(lease(1), note, at(0))
    }

    /// Whether an action writes the note, and whether it releases the lease to learn whether that was written.
    fn sent(action: &NoteAction) -> [bool; 2] {
        [
            matches!(action, NoteAction::Send(Op::WriteNote { .. })),
            matches!(action, NoteAction::Send(Op::Release { note: Some(_), .. })),
        ]
    }

    #[test]
    fn a_write_without_success_is_repeated_at_growing_intervals_while_the_hold_lasts() {
        let mut writer = writer();
        let (mut now, mut intervals) = (at(0), Vec::new());
        for reply in [NoteReply::Rejected, NoteReply::Unknown]
            .into_iter()
            .cycle()
            .take(20)
        {
            let action = writer.poll((HELD, HELD), EXPIRES, now);
            assert_eq!(sent(&action), [true, false], "{action:?}");
            writer.handle_reply(reply, now);
            let NoteAction::Wait(next) = writer.poll((HELD, HELD), EXPIRES, now) else {
                panic!("it is due later");
            };
            intervals.push(next.since(now));
            now = next;
        }
        let grow = intervals.is_sorted() && intervals[0] < intervals[19];
        assert!(grow, "{intervals:?}");
    }

    #[test]
    fn after_a_loss_a_release_shows_whether_an_attempt_without_a_reply_was_applied() {
        for (reply, states, releases) in [
            (NoteReply::Unknown, (LOST, LOST), true),
            // It was certainly not applied.
            (NoteReply::Rejected, (LOST, LOST), false),
            (NoteReply::Lost, (LOST, LOST), false),
            // Other holds keep the lease.
            (NoteReply::Unknown, (LOST, HELD), false),
        ] {
            let mut writer = writer();
            let _ = writer.poll((HELD, HELD), EXPIRES, at(0));
            writer.handle_reply(reply, at(0));
            let action = writer.poll(states, EXPIRES, at(0));
            assert_eq!(sent(&action), [false, releases], "{reply:?} {action:?}");
            let is_lost = action == NoteAction::Lost(Cause::Unreachable);
            assert_eq!(is_lost, !releases, "{reply:?} {action:?}");
        }
    }

    #[test]
    fn the_release_is_repeated_until_it_has_a_reply_or_the_lease_has_expired() {
        let lost = NoteAction::Lost(Cause::Unreachable);
        for expired in [false, true] {
            let mut writer = writer();
            let _ = writer.poll((HELD, HELD), EXPIRES, at(0));
            writer.handle_reply(NoteReply::Unknown, at(0));
            for reply in [NoteReply::Rejected, NoteReply::Unknown] {
                let action = writer.poll((LOST, LOST), EXPIRES, writer.due);
                assert_eq!(sent(&action), [false, true], "{action:?}");
                writer.handle_reply(reply, writer.due);
            }
            let now = match expired {
                true => EXPIRES,
                false => {
                    writer.handle_reply(NoteReply::Lost, writer.due);
                    writer.due
                }
            };
            assert_eq!(writer.poll((LOST, LOST), EXPIRES, now), lost);
        }
    }
}
