//! P15: those that share a lock never rely on more than its limit. P16: readers that rely on it at the same time have one
//! token.

use leasehold_checker::{excesses, overlaps};

use super::facts::{Facts, Hold};
use super::report::{CheckReport, Count};

pub(super) fn check(facts: &Facts, report: &mut CheckReport) {
    for (name, holds) in facts.shares_by_name() {
        let (holds, intervals) = facts.intervals_of(&holds);
        let shares = holds.iter().filter_map(|hold| hold.share);
        let limit = shares.clone().map(|share| share.limit()).max().unwrap_or(0);
        let weights: Vec<_> = shares.map(|share| share.weight()).collect();
        for open in excesses(&intervals, &weights, limit) {
            let at = open.iter().map(|index| intervals[*index].from).max();
            let open: Vec<_> = open.into_iter().map(|index| holds[index]).collect();
            let text = "P15 more than the limit";
            check_forgotten(facts, name, (text, &open[..], at.unwrap_or(0)), report);
        }
        for (earlier, later) in overlaps(&intervals) {
            report.add(Count::Shared, 1);
            let pair = [holds[earlier], holds[later]];
            if pair.iter().all(|hold| hold.reads()) && pair[0].token != pair[1].token {
                let text = "P16 two tokens of readers";
                check_forgotten(
                    facts,
                    name,
                    (text, &pair[..], intervals[later].from),
                    report,
                );
            }
        }
    }
}

/// Holders that must not rely on a lock together at an instant do so only if the store has forgotten one of them.
fn check_forgotten(
    facts: &Facts,
    name: &str,
    (text, holds, at): (&str, &[&Hold], u64),
    report: &mut CheckReport,
) {
    if facts.forgot_any(holds, at) {
        return report.add(Count::OverlapsForgotten, 1);
    }
    let holds: Vec<_> = holds.iter().map(|hold| facts.describe(hold)).collect();
    report.violation(format!("{text} of {name:?} at {at}: {}", holds.join(", ")));
}
