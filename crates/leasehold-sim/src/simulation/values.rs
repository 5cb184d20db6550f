//! The checks of notes: no value of a leader goes back for an observer, and reports of completions are true.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::{Annotation, Leader, LeaseId, Token};

use super::report::Violation;

/// A value of a leader: its term and its number.
pub(super) type Value = (Token, u64);

/// The state of the lock, as the store has read it.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    pub(super) holder: Option<(LeaseId, Duration)>,
    pub(super) value: Option<Annotation>,
    /// The time of the simulation at which it was read.
    pub(super) at: u64,
}

impl Observed {
    /// The holder.
    pub(super) fn lease(&self) -> Option<LeaseId> {
        self.holder.map(|(lease, _)| lease)
    }
}

/// What is known of the values of leaders, and the first violation.
#[derive(Debug, Default)]
pub(super) struct Values {
    /// The number of the newest value of each term whose leader knows that it is stored.
    stored: BTreeMap<Token, u64>,
    violation: Option<Violation>,
}

impl Values {
    /// A leader has received that this value is stored.
    pub(super) fn store(&mut self, (term, number): Value) {
        let stored = self.stored.entry(term).or_default();
        *stored = number.max(*stored);
    }

    /// The newest value of a term that its leader knows to be stored.
    pub(super) fn stored(&self, term: Token) -> Option<Value> {
        self.stored.get(&term).map(|number| (term, *number))
    }

    /// The first violation.
    pub(super) fn check(&mut self) -> Result<(), Violation> {
        self.violation.take().map_or(Ok(()), Err)
    }

    /// Notes a violation of a client, unless the rule holds.
    pub(super) fn require(&mut self, holds: bool, violation: Violation) {
        if !holds {
            self.violation = Some(violation);
        }
    }
}

/// The value of a leader, whose text is its number.
pub(super) fn value(leader: &Leader) -> Option<Value> {
    Some((leader.term, leader.value.parse().ok()?))
}
