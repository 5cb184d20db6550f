//! P1: a loss is not earlier than the deadline, and a check shows no deadline that has passed. P3: a loss is final.

use super::facts::{Facts, Hold};
use super::report::CheckReport;
use crate::history::ObservationKind;

pub(super) fn check(facts: &Facts, report: &mut CheckReport) {
    for hold in &facts.holds {
        for observation in &hold.observations {
            let until = observation.state.until();
            let late = until.is_some_and(|until| observation.before >= until);
            if late && observation.kind != ObservationKind::Notification {
                let hold = facts.describe(hold);
                report.violation(format!(
                    "P1 {hold} was shown a deadline that had passed: {observation:?}"
                ));
            }
        }
        check_loss(facts, hold, report);
    }
}

fn check_loss(facts: &Facts, hold: &Hold, report: &mut CheckReport) {
    let Some(lost) = hold.lost() else {
        return;
    };
    if let Some(revived) = hold.not_lost_after(lost.at) {
        let hold = facts.describe(hold);
        report.violation(format!("P3 {hold} was lost by {lost:?}, then {revived:?}"));
    }
    let before = hold
        .observations
        .iter()
        .filter(|observation| observation.at <= lost.at);
    let deadlines = before.filter_map(|observation| observation.state.until());
    let deadline = deadlines.max().unwrap_or(0);
    // A holder that releases may still read that by any check under way.
    let releasing = hold.releasing.is_some_and(|releasing| releasing <= lost.at);
    if lost.at < deadline
        && !releasing
        && !facts.forgot_hold(hold, facts.before_grant(hold), lost.at)
    {
        report.violation(format!(
            "P1 {} held until {deadline} and was lost before: {lost:?}",
            facts.describe(hold),
        ));
    }
}
