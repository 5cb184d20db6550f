//! The runs of a job: one for each key, or one in each period, by any client.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::acquisition::RunRequest;
use leasehold_core::record::{self, Unless};
use leasehold_core::{
    Completion, CompletionKey, Due, Instant, LeaseId, NewNote, Op, Outcome, Slot, StoreTime, Token,
    job,
};

use super::{Mutation, Occurrence, Simulation, Violation};

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

/// A release that is sent late.
pub(super) fn without_note(release: Op) -> Op {
    release.lease().map_or(release, Op::release)
}

impl Simulation {
    /// The condition of the run that clients ask for.
    pub(super) fn wanted_run(&self) -> Option<Unless> {
        let asked = Duration::ZERO;
        let key = (self.setup.runs && self.faults).then(|| key(self.completed.len()));
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

    /// Observes a release that completes a run.
    pub(super) fn observe_release(
        &mut self,
        op: &Op,
        outcome: &Outcome,
        before: Option<LeaseId>,
    ) -> Result<(), Violation> {
        let Op::Release {
            lease,
            note: Some(note),
            ..
        } = op
        else {
            return Ok(());
        };
        let is_released = *outcome == Outcome::Released;
        let is_first = is_released && before == Some(*lease);
        let Slot::Key(key) = &note.slot else {
            return if is_first {
                self.observe_daily(*lease)
            } else {
                Ok(())
            };
        };
        let mut known = self.completed.get(key).copied();
        if is_first {
            if known.is_some() {
                return Err(Violation::Repeated);
            }
            self.count(Occurrence::Completed);
            let stored = self.record.note(&note.slot, &self.environment());
            known = stored.map(|note| note.lease);
            self.completed.insert(key.clone(), *lease);
        } else if is_released {
            self.count(Occurrence::CompletedBefore);
        }
        let is_known = is_released == (known == Some(*lease));
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
