//! P1: at most one holder of a name relies on it at any instant, and the record names that holder. P6: its hold count
//! is exact.

use leasehold_checker::overlaps;

use super::facts::{Facts, Hold, Interval};
use super::report::{CheckReport, Count};
use crate::clock::Nanos;
use crate::history::{Fault, FaultEvent, ObservationKind, Sample};

pub(super) fn check(facts: &Facts, report: &mut CheckReport) {
    for (name, holds) in facts.holds_by_name() {
        let (of, intervals) = facts.intervals_of(&holds);
        let relied = (&of[..], &intervals[..]);
        check_overlaps(facts, relied, report);
        for (at, sample) in facts
            .samples
            .iter()
            .filter(|(_, sample)| sample.name == name)
        {
            check_sample(facts, (*at, sample), relied, report);
        }
        for hold in holds {
            check_counts(facts, hold, report);
        }
    }
}

fn check_overlaps(
    facts: &Facts,
    (holds, intervals): (&[&Hold], &[Interval<'_>]),
    report: &mut CheckReport,
) {
    for (earlier, later) in overlaps(intervals) {
        let (first, second) = (intervals[earlier], intervals[later]);
        let (earlier, later) = (holds[earlier], holds[later]);
        if facts.forgot_any(&[earlier, later], second.from) {
            report.add(Count::OverlapsForgotten, 1);
        } else {
            report.violation(format!(
                "P1 two holders of {:?} at {}: {} until {}, {} until {}",
                later.name,
                second.from,
                facts.describe(earlier),
                first.until,
                facts.describe(later),
                second.until,
            ));
        }
    }
}

/// Compares a record with the holder that relies on the lock while it is read.
fn check_sample(
    facts: &Facts,
    (at, sample): (Nanos, &Sample),
    (holds, intervals): (&[&Hold], &[Interval<'_>]),
    report: &mut CheckReport,
) {
    if sample.ttl_ms == -1 && !sample.holds.is_empty() {
        report.violation(format!("P8 a record has no expiry: {sample:?}"));
    }
    if sample.holds.len() > 1 {
        report.violation(format!("P1 a record has two leases: {sample:?}"));
    }
    if facts.many {
        // The masters are not read at one instant, and one that has forgotten does not show it.
        return;
    }
    for (interval, hold) in intervals.iter().zip(holds) {
        if interval.from > sample.from || interval.until < at {
            continue;
        }
        report.add(Count::SamplesCompared, 1);
        let (lease, _) = interval.holder;
        if sample.holds.iter().any(|(recorded, _)| recorded == lease) {
            continue;
        }
        if !facts.forgot_hold(hold, facts.before_grant(hold), at) {
            report.violation(format!(
                "P1 {} relies on {:?} from {} to {}, but the record is {sample:?}",
                facts.describe(hold),
                sample.name,
                interval.from,
                interval.until,
            ));
        }
    }
}

/// Only on a single server: many masters are not read at one instant, and one may lag behind.
fn check_counts(facts: &Facts, hold: &Hold, report: &mut CheckReport) {
    if facts.many {
        return;
    }
    for observation in hold
        .observations
        .iter()
        .filter(|seen| !seen.state.is_lost())
    {
        let ObservationKind::Count(expected, found) = &observation.kind else {
            continue;
        };
        report.add(Count::CountsCompared, 1);
        let forgot = || facts.forgot_hold(hold, facts.before_grant(hold), observation.at);
        // A renewal that the server gets late has the count of its time, until the next one.
        let is_its = found
            .as_ref()
            .is_some_and(|(lease, _)| *lease == hold.lease);
        let holds_back = |event: &FaultEvent| event.fault == Fault::HoldRequests;
        let was_late = || is_its && facts.had_fault(hold.requested, observation.at, holds_back);
        if *found != Some((hold.lease.clone(), *expected)) && !forgot() && !was_late() {
            report.violation(format!(
                "P6 the hold count of {} is not {expected}: {observation:?}",
                facts.describe(hold),
            ));
        }
    }
}
