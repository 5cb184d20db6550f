//! P5: the fenced resource accepts no stale write, and rejects no holder.

use std::collections::BTreeMap;

use super::facts::{Facts, Hold};
use super::report::{CheckReport, Count};
use crate::clock::Nanos;
use crate::history::{Fault, FencedWrite, ObservationKind};

pub(super) fn check(facts: &Facts, report: &mut CheckReport) {
    let process = |hold: &Hold| &*facts.processes[hold.process].name;
    let holds = facts.holds.iter();
    let holds: BTreeMap<_, _> = holds
        .map(|hold| ((process(hold), hold.number), hold))
        .collect();
    let mut largest = BTreeMap::<&str, u64>::new();
    for (at, write) in &facts.writes {
        let largest = largest.entry(&*write.name).or_default();
        if write.accepted != (write.token >= *largest) {
            report.violation(format!(
                "P5 the fenced resource had seen token {largest}: {write:?}"
            ));
        }
        *largest = write.token.max(*largest);
        if write.accepted {
            report.add(Count::WritesAccepted, 1);
            continue;
        }
        report.add(Count::WritesRejected, 1);
        if let Some(hold) = holds.get(&(&*write.process, write.hold)) {
            check_rejected(facts, hold, (*at, write), report);
        }
    }
}

/// A rejected write is late, or the store forgot.
fn check_rejected(
    facts: &Facts,
    hold: &Hold,
    (at, write): (Nanos, &FencedWrite),
    report: &mut CheckReport,
) {
    let mut steps = hold.observations.iter();
    let step = steps
        .rfind(|observation| observation.kind == ObservationKind::Step && observation.at <= at);
    let Some(until) = step.and_then(|step| step.state.until()) else {
        return;
    };
    let regressed = !facts.keeps_grants
        && facts.had_fault(0, at, |event| event.fault == Fault::ClockBack)
        && facts.had_fault(0, at, |event| event.fault.forgets_counters());
    if at < until && !facts.granted_twice(hold, facts.before_grant(hold), at) && !regressed {
        report.violation(format!(
            "P5 {} held until {until}, and was rejected: {write:?}",
            facts.describe(hold),
        ));
    }
}
