//! The runs of a job: one for each key, or one in each period, by any client.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::acquisition::RunRequest;
use leasehold_core::note_writer::{NoteAction, NoteReply};
use leasehold_core::record::{self, Unless};
use leasehold_core::{
    Cause, Completion, CompletionKey, Due, Instant, LeaseId, NewNote, NoteWriter, Op, Outcome,
    Slot, State, StoreTime, Token, job,
};

use super::calls::{Calls, Context, Purpose};
use super::{Mutation, Occurrence, Scenario, Simulation, Violation};

/// How long a completion is kept: longer than a simulation takes.
const KEEP: Duration = Duration::from_secs(10_000_000);

/// A run that has begun.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) request: Arc<RunRequest>,
    /// What the store has granted, and when by its clock.
    pub(super) granted: Option<(record::Run, StoreTime)>,
    /// When it began, by the local clock.
    pub(super) begun: Instant,
}

/// The key of the run after so many.
fn key(completed: usize) -> CompletionKey {
    let key = CompletionKey::parse(&format!("{completed:08}"));
    key.unwrap_or_else(|error| unreachable!("{error}"))
}

impl Run {
    /// The completion, if it ends now.
    pub(super) fn completion(&self, now: Instant) -> NewNote {
        NewNote {
            slot: self.request.unless.slot(),
            token: Token::MAX,
            number: 1,
            text: self.text(now).unwrap_or_else(|| "complete".into()).into(),
            keep: KEEP,
        }
    }

    /// The text of a periodic job, as its client writes it.
    fn text(&self, now: Instant) -> Option<String> {
        let (run, started_at) = self.granted.as_ref()?;
        let Unless::Period { schedule, .. } = self.request.unless else {
            return None;
        };
        let last = run.last.as_ref();
        let last = last.and_then(|last| Completion::parse(&last.text).ok());
        let requested_at = run.requested_at;
        let due = job::due(last.as_ref(), schedule, requested_at, *started_at);
        let Due::Run(slots) = due else {
            unreachable!("a run that is complete was granted: {self:?}");
        };
        let completion = Completion {
            slots: Some(slots),
            requested_at,
            started_at: *started_at,
            finished_at: started_at.after_span(now.since(self.begun)),
            keep: None,
            exit_code: 0,
            host: String::new(),
            program: String::new(),
            path: None,
            label: String::new(),
        };
        Some(completion.to_text())
    }
}

/// The host of the writer of a completion, while the lease is held on.
#[derive(Debug)]
pub(super) struct Completing {
    lease: LeaseId,
    writer: NoteWriter,
    /// When the lease has expired in the store, as it was known before the loss.
    expires: Instant,
    /// When the writer is polled next without a reply.
    due: Option<Instant>,
    is_written: bool,
}

impl Completing {
    pub(super) fn new(lease: LeaseId, note: NewNote, now: Instant) -> Self {
        Self {
            lease,
            writer: NoteWriter::new(lease, note, now),
            expires: now,
            due: Some(now),
            is_written: false,
        }
    }

    pub(super) const fn next_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// Writes the note, by the states of the hold and of its lease. Returns whether that has ended.
    pub(super) fn poll(
        &mut self,
        states: (State, State),
        expires: Instant,
        calls: &mut Calls,
        cx: &mut Context<'_>,
    ) -> bool {
        if !states.0.is_lost() {
            self.expires = expires;
        }
        if self.is_written || calls.is_open(Purpose::Write) {
            return self.is_written;
        }
        self.due = None;
        match self.writer.poll(states, self.expires, cx.now) {
            NoteAction::Send(op) => calls.send(Purpose::Write, op, cx),
            NoteAction::Wait(until) => self.due = Some(until),
            NoteAction::Lost(_) => {
                // The reply that is read may be that of the second of two doubled datagrams. And when the lease has
                // expired, a write may have been applied without a reply.
                if cx.setup.has_queue() && cx.now < self.expires {
                    self.check(false, cx);
                }
                return true;
            }
        }
        false
    }

    /// Processes the reply to a write. `None`: it has none. Returns why the lease is lost, if the reply shows that.
    pub(super) fn handle_reply(
        &mut self,
        outcome: Option<&Outcome>,
        cx: &mut Context<'_>,
    ) -> Option<Cause> {
        let reply = match outcome {
            Some(Outcome::Stored | Outcome::Outdated | Outcome::Released) => {
                cx.report.count(Occurrence::NoteWritten);
                self.is_written = true;
                self.check(true, cx);
                return None;
            }
            Some(_) => NoteReply::Lost,
            None if cx.setup.has(Mutation::TakesSilenceForRejection) => NoteReply::Rejected,
            None => NoteReply::Unknown,
        };
        self.writer.handle_reply(reply, cx.now);
        outcome.map(Cause::of)
    }

    fn check(&self, is_reported: bool, cx: &mut Context<'_>) {
        let mut leases = cx.completed.values();
        let is_stored = leases.any(|lease| *lease == self.lease);
        let is_true = is_reported == is_stored;
        cx.values.require(is_true, Violation::Forgotten);
    }
}

/// A release that is sent late.
pub(super) fn without_note(release: Op) -> Op {
    release.lease().map_or(release, Op::release)
}

impl Simulation {
    /// The condition of the run that clients ask for.
    pub(super) fn wanted_run(&self) -> Option<Unless> {
        let asked = Duration::ZERO;
        let is_wanted = self.setup.runs && self.faults || self.setup.scenario == Scenario::LostNote;
        let key = is_wanted.then(|| key(self.completed.len()));
        let keyed = key.map(|key| Unless::Key { key, asked });
        keyed.or_else(|| self.daily_run())
    }

    /// Changes the rule.
    pub(super) fn mutate_run(&mut self, op: &mut Op) {
        let holder = self.holder();
        match (self.setup.mutation, op) {
            (Some(Mutation::ReleasesFirst), Op::Release { note, .. }) => {
                *note = note.take().filter(|_| self.rng.bool());
            }
            (Some(Mutation::DecidesOnce), Op::Acquire(request)) if holder.is_some() => {
                request.unless = None;
            }
            _ => {}
        }
    }

    /// Observes an operation that completes a run.
    pub(super) fn observe_completion(
        &mut self,
        op: &Op,
        outcome: &Outcome,
        before: Option<LeaseId>,
    ) -> Result<(), Violation> {
        let (Op::Release {
            lease,
            note: Some(note),
            ..
        }
        | Op::WriteNote { lease, note }) = op
        else {
            return Ok(());
        };
        let is_written = matches!(
            outcome,
            Outcome::Released | Outcome::Stored | Outcome::Outdated
        );
        let is_held = is_written && before == Some(*lease);
        let key = match &note.slot {
            Slot::Key(key) => key,
            Slot::Period if is_held => return self.observe_daily(*lease),
            Slot::Period | Slot::Value => return Ok(()),
        };
        let mut known = self.completed.get(key).copied();
        if is_held && known != Some(*lease) {
            if known.is_some() {
                return Err(Violation::Repeated);
            }
            self.count(Occurrence::Completed);
            let stored = self.record.note(&note.slot, &self.environment());
            known = stored.map(|note| note.lease);
            self.completed.insert(key.clone(), *lease);
        } else if is_written {
            self.count(Occurrence::CompletedBefore);
        }
        // The lease may have ended since an earlier write. Only a release shows whether that was applied.
        let is_late = !is_written && matches!(op, Op::WriteNote { .. });
        let is_known = is_late || is_written == (known == Some(*lease));
        is_known.then_some(()).ok_or(Violation::Forgotten)
    }

    /// Nobody runs for a key that is complete.
    pub(super) fn check_runs(&self) -> Result<(), Violation> {
        let running = |machine: &super::Machine| {
            let client = machine.client.as_ref()?;
            Some(client.run(machine.now(self.time))?.slot())
        };
        let mut running = self.machines.iter().filter_map(running);
        let is_complete =
            |slot| matches!(slot, Slot::Key(key) if self.completed.contains_key(&key));
        let is_repeated = running.any(is_complete);
        (!is_repeated).then_some(()).ok_or(Violation::Repeated)
    }
}
