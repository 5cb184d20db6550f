//! Notes, and the conditions that depend on them.
//!
//! Only a holder writes a note, so its text was true under its lease. A completion is a note, and the condition of an
//! [`Unless`] is that there is none.

use super::Transaction;
use super::op::{NewNote, Outcome, Run};
use super::rows::{Change, Condition, Holder, Note, Part, Row, Slot, Unless};
use super::source::Source;
use crate::id::LeaseId;
use crate::job::{self, Completion, Due, JobSchedule};
use crate::time::StoreTime;

/// The result of a condition.
pub(super) enum Decision {
    /// It goes on, with its run if it has a condition.
    Run(Option<Run>),
    /// It is needless.
    Complete(Note),
}

impl<S: Source> Transaction<'_, S> {
    /// The condition of a request, which counts from its first request on.
    pub(super) fn condition(
        &self,
        unless: Option<&Unless>,
        requested_at: Option<StoreTime>,
    ) -> Option<Condition> {
        let unless = unless?.clone();
        let requested_at =
            requested_at.unwrap_or_else(|| self.environment.now.before_span(unless.asked()));
        Some(Condition {
            unless,
            requested_at,
        })
    }

    pub(super) fn decide(&mut self, condition: Option<&Condition>) -> Result<Decision, S::Error> {
        let Some(condition) = condition else {
            return Ok(Decision::Run(None));
        };
        let requested_at = condition.requested_at;
        let run = |slots| {
            Decision::Run(Some(Run {
                slots,
                requested_at,
            }))
        };
        Ok(match &condition.unless {
            Unless::Key { key, .. } => {
                let note = self.note(&Slot::Key(key.clone()))?;
                note.map_or_else(|| run(None), Decision::Complete)
            }
            Unless::Period { schedule, .. } => {
                let note = self.note(&Slot::Period)?;
                match self.due(note.as_ref(), *schedule, requested_at) {
                    Due::Run(slots) => run(Some(slots)),
                    Due::Completed => note.map_or_else(|| run(None), Decision::Complete),
                }
            }
        })
    }

    /// Whether a periodic job is due. A note that cannot be read counts as a completion: its reader reports the error, and
    /// no run is repeated by mistake.
    fn due(&self, note: Option<&Note>, schedule: JobSchedule, requested_at: StoreTime) -> Due {
        let stored = note.map(|note| Completion::parse(&note.text)).transpose();
        stored.map_or(Due::Completed, |stored| {
            job::due(
                stored.as_ref(),
                schedule,
                requested_at,
                self.environment.now,
            )
        })
    }

    /// Stores a note, unless its lease has written a later one in the same slot.
    pub(super) fn store_note(
        &mut self,
        holder: &Holder,
        new: &NewNote,
    ) -> Result<Outcome, S::Error> {
        let stored = self.note(&new.slot)?;
        if stored.is_some_and(|note| note.lease == holder.lease && note.number > new.number) {
            return Ok(Outcome::Outdated);
        }
        let note = Note {
            lease: holder.lease,
            token: new.token,
            number: new.number,
            text: new.text.clone(),
            until: self.environment.now.after_span(new.keep),
        };
        let change = Change::Put(Part::Note(new.slot.clone()), Row::Note(note.clone()));
        self.changes.rows.push(change);
        self.written = Some((new.slot.clone(), note));
        self.changed = true;
        Ok(Outcome::Stored)
    }

    /// Whether a release that is repeated has written its note before.
    pub(super) fn was_written(
        &mut self,
        lease: LeaseId,
        note: Option<&NewNote>,
    ) -> Result<bool, S::Error> {
        let Some(new) = note else {
            return Ok(false);
        };
        let stored = self.note(&new.slot)?;
        Ok(stored.is_some_and(|note| note.lease == lease && note.number >= new.number))
    }

    /// Also removes one that has ended, so that no clock that is set back revives it.
    pub(super) fn remove_note(&mut self, slot: &Slot) -> Result<Outcome, S::Error> {
        let Some(note) = self.source.note(slot)? else {
            return Ok(Outcome::Removed(false));
        };
        let is_kept = self.environment.now < note.until;
        let part = Part::Note(slot.clone());
        self.changes.rows.push(Change::Remove(part));
        self.changed |= is_kept;
        Ok(Outcome::Removed(is_kept))
    }

    /// A note that has not ended, as it is now.
    fn note(&mut self, slot: &Slot) -> Result<Option<Note>, S::Error> {
        if let Some((written, note)) = &self.written
            && written == slot
        {
            return Ok(Some(note.clone()));
        }
        let note = self.source.note(slot)?;
        Ok(note.filter(|note| self.environment.now < note.until))
    }
}
