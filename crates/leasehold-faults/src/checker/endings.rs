//! P8: nothing is left behind, and every process ends as requested.

use super::facts::{Facts, Hold};
use super::report::CheckReport;

pub(super) fn check(facts: &Facts, report: &mut CheckReport) {
    for violation in &facts.violations {
        report.violation(violation.clone());
    }
    for (name, lease) in &facts.held_at_end {
        check_shutdown(facts, name, lease, report);
    }
}

/// A shutdown releases what is held. A lost lease is left to its ttl: after a loss, or if a re-entry made the record
/// of a fixed lease last longer, that may not have passed.
fn check_shutdown(facts: &Facts, name: &str, lease: &str, report: &mut CheckReport) {
    let client = |lease: &str| lease.split(':').next().map(str::to_owned);
    let mut holds = facts.holds.iter();
    let of_client = holds.find(|hold| client(&hold.lease) == client(lease));
    let process = of_client.map(|hold| &facts.processes[hold.process]);
    let Some((process, ended)) = process.and_then(|process| Some((process, process.released?)))
    else {
        return;
    };
    let mut holds = facts.holds.iter().filter(|hold| hold.lease == lease);
    let over = |hold: &Hold| hold.lost().is_some() || hold.deadline().unwrap_or(0) < ended;
    if !holds.any(over) {
        report.violation(format!(
            "P8 process {} released everything and ended, but {lease} holds {name:?}",
            process.name,
        ));
    }
}
