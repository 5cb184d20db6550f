//! Latches with the names of locks: a name is of one kind at a time.

use std::fmt::Debug;

use leasehold::ErrorKind;
use leasehold_core::latch::{self, LatchRecord};
use leasehold_sim::history::{AnnotationOp, LatchOp, Shape};

use super::{Played, Player};
use crate::readings::Readings as _;

/// Checks that an operation on a lock was refused because its name is used as a latch.
pub(super) fn refused(op: &dyn Debug, reply: &dyn Debug) -> Result<(), String> {
    let reply = format!("{reply:?}");
    match reply.contains("kind: Conflict") && reply.contains("used as a latch") {
        true => Ok(()),
        false => Err(format!("{op:?} on a latch had the reply {reply}")),
    }
}

impl Player<'_> {
    /// Whether a name is used as a latch at this moment.
    pub(super) fn is_latch(&self, name: usize) -> bool {
        let now = self.time();
        let latch = self.names[name].latch.as_ref();
        latch.is_some_and(|latch| latch.is_kept(now))
    }

    /// Plays an operation on a latch, and compares its result and what an observer reads.
    pub(super) async fn latch(&mut self, name: usize, op: &LatchOp) -> Result<(), String> {
        let (now, store) = (self.time(), self.target.store);
        let Played {
            key, record, latch, ..
        } = &mut self.names[name];
        let is_held = record.holder(now).is_some();
        let has_traces = record.hold.is_some() || !record.queue.is_empty();
        if self.target.shape == Shape::RunningBack && !is_held && has_traces {
            // A clock that is set back would revive them in the record of the rule, which the store has replaced.
            return Ok(());
        }
        let (found, expected) = match op {
            LatchOp::Arrive(arrival) => {
                let found = store.arrive(key, arrival).await;
                let expected = latch::arrive(record, latch, arrival, now);
                (
                    found.map(|it| format!("{it:?}")),
                    expected.map(|it| format!("{it:?}")),
                )
            }
            LatchOp::Reset => {
                let found = store.reset_latch(key).await;
                let expected = latch::reset(record, latch, now);
                (
                    found.map(|it| format!("{it:?}")),
                    expected.map(|it| format!("{it:?}")),
                )
            }
        };
        let alike = match (&found, &expected) {
            (Ok(found), Ok(expected)) => found == expected,
            (Err(found), Err(expected)) => {
                found.kind() == ErrorKind::Conflict
                    && found.to_string().ends_with(&expected.to_string())
            }
            _ => false,
        };
        if !alike {
            return Err(format!(
                "{op:?} at {now:?} had the result {found:?}, not {expected:?}"
            ));
        }
        let observed = store.watch_latch(key).await;
        let expected = latch.as_ref().map(LatchRecord::status);
        match observed {
            Ok(found) if !is_held && found == expected => Ok(()),
            Err(error) if is_held && error.kind() == ErrorKind::Conflict => Ok(()),
            found => Err(format!(
                "an observer of the latch reads {found:?} at {now:?}, not {expected:?}"
            )),
        }
    }

    /// Plays an operation on an annotation of a name that is used as a latch. Only its removal concerns no lock.
    pub(super) async fn annotation_of_latch(
        &mut self,
        name: usize,
        op: &AnnotationOp,
    ) -> Result<(), String> {
        let (now, store) = (self.time(), self.target.store);
        let Played {
            key, annotations, ..
        } = &mut self.names[name];
        let kind = op.kind();
        match op {
            AnnotationOp::Annotate {
                annotation, keep, ..
            } => refused(op, &store.annotate(key, kind, annotation, *keep).await)?,
            AnnotationOp::Remove { .. } => {
                let found = store.remove_annotation(key, kind).await;
                let removed = annotations.remove(kind);
                let expected = removed.is_some_and(|(_, until)| now < until);
                if !matches!(found, Ok(found) if found == expected) {
                    return Err(format!("{op:?} had the result {found:?}, not {expected}"));
                }
            }
        }
        refused(&"an observer", &store.observe(key, kind).await.map(drop))
    }

    /// Lets the store remove expired latches, before its clock is set back.
    pub(super) async fn expire_latches(&mut self) {
        let now = self.time();
        for Played { key, latch, .. } in &mut self.names {
            if latch.as_ref().is_some_and(|latch| !latch.is_kept(now)) {
                // The reading expires it.
                drop(self.target.store.watch_latch(key).await);
                *latch = None;
            }
        }
    }
}
