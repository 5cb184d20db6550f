//! The watchdog: a lease of a live process is not lost, and not granted to another, while a node watches the process.

use super::facts::{Facts, Hold};
use super::report::{CheckReport, Count};
use crate::history::Fault;

/// The part of its ttl for which a holder waits for a reply of the store.
const REPLY_TIMEOUT_PART: u64 = 6;

pub(super) fn check(facts: &Facts, report: &mut CheckReport) {
    if !facts.watched {
        return;
    }
    for mut holds in facts.holds_by_name().into_values() {
        holds.sort_by_key(|hold| hold.token);
        for hold in &holds {
            check_loss(facts, hold, report);
        }
        for pair in holds.windows(2) {
            check_next(facts, pair[0], pair[1], report);
        }
    }
}

/// A loss is excused by a pause during which no node watched the process at some time, by one that ended so shortly before the
/// deadline that no reply had to arrive in time, and by a server that did not reply to anybody before the deadline.
fn check_loss(facts: &Facts, hold: &Hold, report: &mut CheckReport) {
    let Some(lost) = hold.lost() else {
        return;
    };
    let process = &facts.processes[hold.process];
    let deadline = hold.deadline().unwrap_or(0);
    let since = deadline.saturating_sub(process.ttl);
    if facts.had_fault(since, lost.at, |event| event.fault == Fault::SlowServer) {
        report.add(Count::LostToSlowServers, 1);
        return;
    }
    let mut pauses = facts.faults.iter().filter(|event| {
        event.fault.pauses_holder() && event.process.as_deref() == Some(&*process.name)
    });
    let excused = pauses.any(|pause| {
        let (stopped, resumed) = pause.outer;
        let latest = resumed + process.ttl / REPLY_TIMEOUT_PART;
        let by_pause = stopped <= lost.at && deadline <= latest;
        let is_unwatched =
            || facts.had_fault(stopped, resumed, |event| event.fault == Fault::KillNodes);
        by_pause && (resumed <= deadline || is_unwatched())
    });
    if !excused {
        report.violation(format!(
            "{} was lost though its process was watched; its deadline was {deadline}: {lost:?}",
            facts.describe(hold),
        ));
    }
}

/// Each grant follows the release of the hold before, its loss or the death of its process.
fn check_next(facts: &Facts, hold: &Hold, next: &Hold, report: &mut CheckReport) {
    let died = facts.processes[hold.process].died;
    let ends = [hold.releasing, died].into_iter().flatten();
    let ended = ends.min().is_some_and(|end| end <= next.granted);
    if !ended && hold.lost().is_none() {
        report.violation(format!(
            "{:?} was granted to {} at {}, though the process of {} lived",
            hold.name,
            facts.describe(next),
            next.granted,
            facts.describe(hold),
        ));
    }
}
