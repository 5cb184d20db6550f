//! P2: a holder reads `Lost` before another can hold the name, and by which margin.
//!
//! Only where the time in a token is that of its grant.

use std::collections::BTreeMap;

use super::facts::{Facts, Hold};
use super::report::{CheckReport, Margin};
use crate::clock::{MILLI, Nanos};

/// How much earlier than its grant the time in a token may be: it counts whole microseconds, and the two clocks are
/// not read at one instant.
const TOLERANCE: i64 = MILLI.cast_signed() / 10;

pub(super) fn check(facts: &Facts, report: &mut CheckReport) {
    for holds in facts.holds_by_name().into_values() {
        let mut leases = BTreeMap::<Nanos, Vec<_>>::new();
        for hold in holds {
            let Some(at) = facts.granted_at(&hold.lease) else {
                return;
            };
            leases.entry(at).or_default().push(hold);
        }
        for ((at, holds), next) in leases.iter().zip(leases.keys().skip(1)) {
            check_next(facts, *at, holds, *next, report);
        }
    }
}

/// Measures the time from the deadline of a lease that was granted at an instant to the next grant.
fn check_next(facts: &Facts, at: Nanos, holds: &[&Hold], next: Nanos, report: &mut CheckReport) {
    let stays = |hold: &&&Hold| hold.releasing.is_none_or(|releasing| releasing > next);
    for hold in holds.iter().filter(stays) {
        let Some(deadline) = hold.deadline() else {
            continue;
        };
        if facts.granted_twice(hold, at.saturating_sub(MILLI), next) {
            continue;
        }
        let margin = next.cast_signed() - deadline.cast_signed();
        if margin < -TOLERANCE {
            report.violation(format!(
                "P2 {} held {:?} until {deadline}, but it was granted to another at {next}",
                facts.describe(hold),
                hold.name,
            ));
        }
        if hold.fixed {
            report.margin(Margin::Fixed, margin);
            continue;
        }
        report.margin(Margin::Renewed, margin);
        if holds.len() == 1 {
            report.margin(Margin::OfTtl, margin * 1000 / hold.ttl.max(1).cast_signed());
            if margin + TOLERANCE < hold.ttl.cast_signed() / 3 {
                report.violation(format!(
                    "P2 {} had less than a third of its ttl: its deadline was {deadline}, the next grant at {next}",
                    facts.describe(hold),
                ));
            }
        }
        check_notification(facts, hold, deadline, next, report);
    }
}

/// Checks that the holder of a renewed lease was notified of its loss before the next grant, while its process ran.
fn check_notification(
    facts: &Facts,
    hold: &Hold,
    deadline: Nanos,
    next: Nanos,
    report: &mut CheckReport,
) {
    let Some(lost) = hold.lost() else {
        return;
    };
    let mut stalls = facts.processes[hold.process].stalls.iter();
    if stalls.any(|(from, until)| *from < lost.at && *until > deadline.min(next)) {
        return;
    }
    let margin = next.cast_signed() - lost.at.cast_signed();
    report.margin(Margin::Notified, margin);
    if margin < 0 {
        report.violation(format!(
            "P2 {} was notified of its loss at {}, after the next grant at {next}",
            facts.describe(hold),
            lost.at,
        ));
    }
}
