//! P12: after a run for a key of a job is known to be complete, no other run for the key begins, and none is completed.
//!
//! A run begins when it first relies on the lock, so runs at the same time violate P1. A store that forgets its records
//! is the only excuse.

use std::collections::BTreeMap;

use super::facts::{Facts, Hold};
use super::report::{CheckReport, Count};
use crate::clock::Nanos;

pub(super) fn check(facts: &Facts, report: &mut CheckReport) {
    let mut jobs = BTreeMap::<_, Vec<&Hold>>::new();
    for run in facts.holds.iter().chain(&facts.complete_before) {
        if let Some(key) = &run.key {
            jobs.entry((&run.name, key)).or_default().push(run);
        }
    }
    for ((name, key), runs) in jobs {
        let requested = runs.iter().map(|run| run.requested).min().unwrap_or(0);
        for complete in &runs {
            let Some(known) = complete.completed else {
                continue;
            };
            let count = match complete.token {
                Some(_) => Count::RunsCompleted,
                None => Count::RunsCompleteBefore,
            };
            report.add(count, 1);
            for run in &runs {
                let Some(at) = repeated_at(facts, run, complete, known) else {
                    continue;
                };
                if facts.forgot(name, requested, at) {
                    report.add(Count::RunsForgotten, 1);
                    continue;
                }
                report.violation(format!(
                    "P12 {} ran {name:?} for {key:?} at {at}, but {} knew at {known} that it was complete",
                    facts.describe(run),
                    facts.describe(complete),
                ));
            }
        }
    }
}

/// When a run began or was completed after another one was known to be complete.
fn repeated_at(facts: &Facts, run: &Hold, complete: &Hold, known: Nanos) -> Option<Nanos> {
    let intervals = facts.hold_intervals(run);
    let begun = intervals.first().map(|(from, _)| *from);
    // A process that did not run it may know of a completion before the one that did.
    let both_ran = run.token.is_some() && complete.token.is_some();
    let completed = run.completed.filter(|_| both_ran);
    let mut times = [begun, completed].into_iter().flatten();
    times.find(|at| *at > known)
}
