//! The fenced resource keeps its word, and refuses nobody who holds the lock.

use std::collections::BTreeMap;

use super::facts::{Facts, Hold, Look, LookKind, Written};
use super::verdict::Verdict;
use crate::history::Fault;

pub(super) fn check(facts: &Facts, verdict: &mut Verdict) {
    let named = |hold: &Hold| facts.processes[hold.process].name.clone();
    let holds: BTreeMap<_, _> = facts
        .granted()
        .map(|(hold, _)| ((named(hold), hold.number), hold))
        .collect();
    let mut largest = BTreeMap::<&str, u64>::new();
    for write in &facts.writes {
        let largest = largest.entry(&*write.name).or_default();
        if write.accepted != (write.token >= *largest) {
            verdict.violation(format!(
                "the fenced resource had seen token {largest}: {write:?}"
            ));
        }
        *largest = write.token.max(*largest);
        if write.accepted {
            verdict.figures.writes_accepted += 1;
            continue;
        }
        verdict.figures.writes_refused += 1;
        if let Some(hold) = holds.get(&(write.process.clone(), write.hold)) {
            refused(facts, hold, write, verdict);
        }
    }
}

/// A refused write is late, or the store forgot.
fn refused(facts: &Facts, hold: &Hold, write: &Written, verdict: &mut Verdict) {
    let step = |look: &&Look| matches!(look.kind, LookKind::Step(_)) && look.at <= write.at;
    let Some(until) = hold.looks.iter().rfind(step).and_then(Look::until) else {
        return;
    };
    let granted = facts.before_grant(hold);
    let regressed = !facts.many
        && facts.happened(0, write.at, |happened| happened.fault == Fault::ClockBack)
        && facts.happened(0, write.at, |happened| happened.fault.forgets_counters());
    if write.at < until && !facts.granted_twice(hold, granted, write.at) && !regressed {
        verdict.violation(format!(
            "P5 {} was promised until {until}, and refused: {write:?}",
            facts.describe(hold),
        ));
    }
}
