//! The runs of a job: one for each key, by any client.

use std::time::Duration;

use leasehold_core::acquisition::RunRequest;
use leasehold_core::record::{Change, Changes, Note, Part, Row, Unless};
use leasehold_core::{CompletionKey, LeaseId, NewNote, Op, Outcome, Slot, Token};

use super::{Mutation, Occurrence, Simulation, Violation};

/// How long a completion is kept: longer than a simulation takes.
const KEEP: Duration = Duration::from_secs(1_000_000);

/// The key of the run after so many.
pub(super) fn key(completed: usize) -> CompletionKey {
    match CompletionKey::parse(&format!("{completed:08}")) {
        Ok(key) => key,
        Err(error) => unreachable!("{error}"),
    }
}

pub(super) const fn unless(key: CompletionKey) -> Unless {
    let asked = Duration::ZERO;
    Unless::Key { key, asked }
}

/// The completion of a run.
pub(super) fn completion(run: &RunRequest) -> NewNote {
    NewNote {
        slot: run.unless.slot(),
        token: Token::MAX,
        number: 1,
        text: "complete".into(),
        keep: KEEP,
    }
}

/// A release that is sent late.
pub(super) fn without_note(release: Op) -> Op {
    release.lease().map_or(release, Op::release)
}

impl Simulation {
    /// Changes the rule.
    pub(super) fn mutate_run(&mut self, op: &mut Op) {
        let holder = self.holder();
        match (self.setup.mutation, op) {
            (
                Some(Mutation::CompletesUnheld),
                Op::Release {
                    lease,
                    note: Some(new),
                    ..
                },
            ) => {
                let note = Note {
                    lease: *lease,
                    token: new.token,
                    number: new.number,
                    text: new.text.clone(),
                    until: self.environment().now.after_span(new.keep),
                };
                let part = Part::Note(new.slot.clone());
                let rows = vec![Change::Put(part, Row::Note(note))];
                self.record.store(Changes { head: None, rows });
            }
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
        let Slot::Key(key) = &note.slot else {
            return Ok(());
        };
        let mut known = self.completed.get(key).copied();
        let is_released = *outcome == Outcome::Released;
        if before == Some(*lease) && is_released {
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
        match is_released == (known == Some(*lease)) {
            true => Ok(()),
            false => Err(Violation::Forgotten),
        }
    }

    /// Nobody runs for a key that is complete.
    pub(super) fn check_runs(&self) -> Result<(), Violation> {
        let running = |machine: &super::Machine| {
            let client = machine.client.as_ref()?;
            Some(client.run(machine.now(self.time))?.slot())
        };
        let mut running = self.machines.iter().filter_map(running);
        let is_complete = |slot| match slot {
            Slot::Key(key) => self.completed.contains_key(&key),
            _ => false,
        };
        match running.any(is_complete) {
            true => Err(Violation::Repeated),
            false => Ok(()),
        }
    }
}
