//! P4: a process that was stopped for longer than its ttl reads `Lost` at its first check. A watchdog keeps its leases.

use super::facts::{Facts, Hold};
use super::report::{CheckReport, Count};
use crate::clock::Nanos;

pub(super) fn check(facts: &Facts, report: &mut CheckReport) {
    for event in &facts.faults {
        let name = event.process.as_deref();
        let mut processes = facts.processes.iter();
        let Some(index) = processes.position(|process| Some(&*process.name) == name) else {
            continue;
        };
        let (stopped, resumed) = event.inner;
        let holds = facts.holds.iter().filter(|hold| hold.process == index);
        if event.fault.ends_holder() {
            let held = holds.filter(|hold| holds_at(facts, hold, event.outer.0.saturating_sub(1)));
            report.add(Count::KilledHolding, held.count() as u64);
        } else if event.fault.pauses_holder() && resumed - stopped > facts.processes[index].ttl {
            for hold in holds {
                report.add(
                    Count::PausedHolding,
                    u64::from(holds_at(facts, hold, stopped)),
                );
                if !facts.watched {
                    check_after(facts, hold, event.inner, report);
                }
            }
        }
    }
}

fn check_after(
    facts: &Facts,
    hold: &Hold,
    (stopped, resumed): (Nanos, Nanos),
    report: &mut CheckReport,
) {
    if hold.granted >= stopped {
        return;
    }
    if let Some(observation) = hold.not_lost_after(resumed) {
        report.violation(format!(
            "P4 {} was stopped from {stopped} to {resumed}, longer than its ttl, then {observation:?}",
            facts.describe(hold),
        ));
    }
}

fn holds_at(facts: &Facts, hold: &Hold, at: Nanos) -> bool {
    let intervals = facts.hold_intervals(hold);
    intervals
        .iter()
        .any(|(from, until)| *from <= at && at < *until)
}
