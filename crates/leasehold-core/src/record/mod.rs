//! The rule of a record: what one operation changes in everything that a store keeps of one name.
//!
//! Each name has one record, which encodes every kind of synchronizer. It consists of a [`Head`] and rows. The head has
//! the counter of the fencing tokens, the size of the queue, and a body, which is free, held by leases, or a latch. Each
//! holder, waiter, arrival and note has a row of its own, and so has the description of a client, whose record has
//! nothing else. A mutex is a semaphore with one permit whose only holder is in the head, so that an uncontended lock
//! changes only the head. A read-write lock is one whose permits are all the writer's, and of which a reader has one.
//!
//! [`apply`] reads the record through a [`Source`], part by part, and returns a list of changes. It never needs the
//! whole record. If the source cannot read a part, the rule stops with its error, and has changed nothing and notified
//! nobody. So a store can load parts one by one: where one is missing, it loads that and calls the rule again.
//!
//! Three properties make every operation harmless when it is repeated or late:
//!
//! * A lease id stands for one acquisition, so a late message can only concern its own grant.
//! * Hold counts and the numbers of notes are absolute. A client that enters twice sends "two", not "one more".
//! * Only a release and a revocation shorten a lease.
//!
//! A free permit is granted to the head of the queue in the step that finds it free, normally the release. A request
//! cannot overtake the queue; only a holder that is to hold more does, and one that waits for it stands before all others. A
//! holder can end its lease and keep its permits taken for a while, its minimum hold:
//! its row is then marked as reserved, and no request of any lease changes it.

mod convert;
pub mod environment;
mod latch;
mod leases;
mod notes;
pub mod op;
pub mod queue;
mod retention;
pub mod rows;
pub mod source;
pub mod stored;
pub mod text;

pub use self::environment::Environment;
pub use self::op::{
    Acquire, Applied, Grant, Loss, Mismatch, NewNote, Notice, Op, Outcome, Removal, Run, Whom,
};
pub use self::rows::{
    Access, Body, Change, Changes, Claim, Class, Condition, Description, End, Head, Holder, Kind,
    Latch, LeaseKind, Leases, Note, Part, QueueHead, Row, Setting, Slot, Unless, Waiter,
};
pub use self::source::Source;
pub use self::stored::Rows;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use self::convert::ConvertRequest;
use self::queue::Progress;
use crate::id::LeaseId;

/// Applies one operation to the record that `source` reads.
///
/// The notices in the result are valid only if the changes are stored: a store that may still fail delays them until it
/// cannot.
///
/// # Errors
///
/// That of the source. Nothing has happened then.
pub fn apply<S: Source>(
    source: &mut S,
    op: &Op,
    environment: &Environment,
) -> Result<Applied, S::Error> {
    let stored = source.head()?;
    let mut transaction = Transaction {
        source,
        environment,
        head: stored,
        progress: Progress::default(),
        written: None,
        changed: BTreeMap::new(),
        has_all_holders: false,
        changes: Changes::default(),
        notices: Vec::new(),
        is_visible: false,
    };
    let outcome = transaction.run(op)?;
    let head = transaction.head;
    transaction.changes.head = (head != stored).then_some(head);
    Ok(Applied {
        outcome,
        notices: transaction.notices,
        changes: transaction.changes,
        is_visible: transaction.is_visible,
        unfinished: transaction.progress.unfinished,
    })
}

/// One run of the rule: its source and its changes so far.
struct Transaction<'a, S> {
    source: &'a mut S,
    environment: &'a Environment,
    /// The head with the changes of this run. The source has the rows without them: no run reads an arrival that it has
    /// changed, and [`Progress`], `written` and `changed` stand for the changes of waiters, notes and holders.
    head: Head,
    progress: Progress,
    /// The note that this run has written.
    written: Option<(Slot, Note)>,
    /// The holders with rows of their own that this run has stored, or removed.
    changed: BTreeMap<LeaseId, Option<Holder>>,
    /// Whether the others are also in `changed`.
    has_all_holders: bool,
    changes: Changes,
    notices: Vec<Notice>,
    is_visible: bool,
}

impl<S: Source> Transaction<'_, S> {
    fn run(&mut self, op: &Op) -> Result<Outcome, S::Error> {
        // A note belongs to no kind, and an operator who removes one acts on no lease. A client is no lock.
        if let Op::Remove(Removal::Note(_)) | Op::Describe { .. } = op {
            return self.run_op(op);
        }
        self.drop_ended()?;
        if let Op::Acquire(request) = op
            && let Some(note) = self.leave_if_complete(request)?
        {
            self.serve(None)?;
            self.free_unused();
            return Ok(Outcome::Complete(note));
        }
        // Earlier waiters come first. Without a living one, a free name may be taken by another kind.
        if let Op::Acquire(_) | Op::SetLimit { .. } | Op::Arrive { .. } | Op::Remove(_) = op {
            self.serve(op.requester())?;
            self.free_unused();
        }
        let outcome = self.run_op(op)?;
        self.serve(op.requester())?;
        self.free_unused();
        Ok(outcome)
    }

    fn run_op(&mut self, op: &Op) -> Result<Outcome, S::Error> {
        if let Some(kind) = self.other_kind(op) {
            return Ok(Outcome::Mismatch(Mismatch::Kind(kind)));
        }
        match op {
            Op::Acquire(request) => self.acquire(request),
            Op::Renew { lease, ttl, count } => self.renew(*lease, *ttl, *count),
            Op::Convert {
                lease,
                first,
                claim,
                ttl,
                tokens,
                wait,
            } => self.convert(&ConvertRequest {
                lease: *lease,
                first: *first,
                claim: *claim,
                ttl: *ttl,
                tokens: *tokens,
                wait: *wait,
            }),
            Op::SetLimit {
                permits,
                if_version,
                keep,
            } => Ok(self.set_limit(*permits, *if_version, *keep)),
            Op::Release { lease, rest, note } => self.release(*lease, *rest, note.as_ref()),
            Op::WriteNote { lease, note } => self.write_note(*lease, note),
            Op::SetToken {
                lease,
                first,
                tokens,
            } => self.set_token(*lease, *first, *tokens),
            Op::Revoke(whom) => self.revoke(*whom),
            Op::Serve => Ok(self.resume()),
            Op::Arrive { id, count, keep } => self.arrive(id, *count, *keep),
            Op::Remove(Removal::Latch) => Ok(self.remove_latch()),
            Op::Remove(Removal::Note(slot)) => self.remove_note(slot),
            Op::Describe { text, keep } => Ok(self.describe(text, *keep)),
        }
    }

    /// What the name is used as, if that is a latch and the operation is on a lock, or the other way round.
    const fn other_kind(&self, op: &Op) -> Option<Kind> {
        let is_on_latch = match op {
            Op::Arrive { .. } | Op::Remove(Removal::Latch) => true,
            Op::Serve | Op::Remove(Removal::Note(_)) | Op::Describe { .. } => return None,
            _ => false,
        };
        match self.head.body {
            Body::Latch(_) if !is_on_latch => Some(Kind::Latch),
            Body::Leases(leases) if is_on_latch => Some(Kind::Leases(leases.kind)),
            // The readers have one token.
            Body::Leases(leases) => match (leases.kind, op) {
                (LeaseKind::RwLock, Op::SetToken { .. }) => Some(Kind::Leases(leases.kind)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Stores the description of a client. No other operation reads it.
    fn describe(&mut self, text: &Arc<str>, keep: Duration) -> Outcome {
        let description = Description {
            text: Arc::clone(text),
            until: self.environment.now.after_span(keep),
        };
        let row = Row::Description(description);
        self.changes.rows.push(Change::Put(Part::Description, row));
        Outcome::Stored
    }

    /// Drops what has ended: an unattended queue, a latch, and the leases of holders.
    fn drop_ended(&mut self) -> Result<(), S::Error> {
        self.drop_ended_queue();
        self.drop_ended_latch();
        self.drop_ended_holders()?;
        self.free_unused();
        Ok(())
    }

    /// A name without holders, waiters and a set limit may be taken by any kind.
    fn free_unused(&mut self) {
        if self.head.queue.len > 0 {
            return;
        }
        if let Body::Leases(leases) = self.head.body
            && leases.used == 0
            && !leases.is_set(self.environment.now)
        {
            self.head.body = Body::Free;
        }
    }
}

#[cfg(test)]
mod tests;
