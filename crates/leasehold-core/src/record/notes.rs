//! Notes, and the conditions that depend on them.
//!
//! The value of a leader and the completion records of jobs are notes. Only a holder writes one, so its text was true under
//! its lease. It stays when the lease ends, until it expires: what it means then is decided by the reader. The condition of
//! an [`Unless`] is that there is no completion.

use super::Transaction;
use super::op::{NewNote, Outcome, Run};
use super::rows::{Change, Condition, Holder, Note, Part, Row, Slot, Unless};
use super::source::Source;
use crate::annotation::Annotation;
use crate::id::LeaseId;
use crate::time::StoreTime;

/// Whether the condition of a request is met.
pub(super) enum Checked {
    /// The request has none, or it is not met: the request is for this run.
    Unmet(Option<Run>),
    /// The request is needless, by this completion.
    Met(Annotation),
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
            requested_at.unwrap_or_else(|| self.environment.calendar.before_span(unless.asked()));
        Some(Condition {
            unless,
            requested_at,
        })
    }

    pub(super) fn check_condition(
        &mut self,
        condition: Option<&Condition>,
    ) -> Result<Checked, S::Error> {
        let Some(condition) = condition else {
            return Ok(Checked::Unmet(None));
        };
        let last = self.note(&condition.unless.slot())?;
        let last = last.as_ref().map(Annotation::from);
        let is_met = |last: &Annotation| condition.is_met(&last.text, self.environment.calendar);
        Ok(match last {
            Some(last) if is_met(&last) => Checked::Met(last),
            last => Checked::Unmet(Some(Run {
                requested_at: condition.requested_at,
                last,
            })),
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
            until: self.environment.calendar.after_span(new.keep),
        };
        let change = Change::Put(Part::Note(new.slot.clone()), Row::Note(note.clone()));
        self.changes.rows.push(change);
        self.written = Some((new.slot.clone(), note));
        self.is_visible = true;
        Ok(Outcome::Stored)
    }

    /// Whether a release that is repeated has written its note before, or was too late for that.
    pub(super) fn was_written(
        &mut self,
        lease: LeaseId,
        note: Option<&NewNote>,
    ) -> Result<bool, S::Error> {
        let Some(new) = note else {
            return Ok(false);
        };
        // Another hold of the lease may have written one with the same number.
        let stored = self.note(&new.slot)?;
        Ok(stored.is_some_and(|note| {
            note.lease == lease && (note.number > new.number || new.is_content_of(&note))
        }))
    }

    /// Also removes one that has ended, so that no clock that is set back revives it.
    pub(super) fn remove_note(&mut self, slot: &Slot) -> Result<Outcome, S::Error> {
        let Some(note) = self.source.note(slot)? else {
            return Ok(Outcome::Removed(false));
        };
        let is_kept = self.environment.calendar < note.until;
        let part = Part::Note(slot.clone());
        self.changes.rows.push(Change::Remove(part));
        self.is_visible |= is_kept;
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
        Ok(note.filter(|note| self.environment.calendar < note.until))
    }
}
