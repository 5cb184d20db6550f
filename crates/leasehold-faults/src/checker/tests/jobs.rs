//! The checks of jobs, as in the other tests of checks.

use super::*;
use crate::checker::report::Count::{RunsCompleteBefore, RunsCompleted, RunsForgotten};

/// A run from its grant to its end, with a lease for its first 8 ms.
fn run(key: &str, at: u64, end: u64, completes: bool) -> Events {
    let mut events = vec![
        requested(at - 1),
        hold(at - 1, HoldEvent::Runs(key.into())),
        granted(at, &format!("lease:{at}"), at * 1000),
        held(at, at + 8),
    ];
    if completes {
        events.push(hold(end, HoldEvent::Completed));
    }
    events
}

/// A process that learns at an instant that the first run was complete before.
fn complete_before(at: u64) -> Events {
    vec![
        requested(20),
        hold(20, HoldEvent::Runs("v1".into())),
        hold(at, HoldEvent::Completed),
    ]
}

fn two(one: Events, other: Events) -> Builder {
    let history = Builder::world(None, 1, false).process("0-1", one);
    history.process("1-1", other)
}

fn repeated(completes: bool) -> Builder {
    two(run("v1", 12, 23, true), run("v1", 30, 40, completes))
}

#[test]
fn violations_of_jobs_are_found() {
    finds("P12", &repeated(true));
    finds("P12", &repeated(false));
    // A fault before the first run excuses nothing, nor does one that keeps all.
    finds("P12", &repeated(false).fault(FlushAll, 5, 6));
    finds("P12", &repeated(false).fault(RestartKept, 24, 25));
    let begun = run("v1", 30, 40, false);
    finds("P12", &two(complete_before(25), begun));
    // A run that has lost its lease is completed after the next one.
    let late = run("v1", 12, 50, true);
    finds("P12", &two(late, run("v1", 30, 40, true)));
}

#[test]
fn no_violation_of_jobs_is_found_without_one() {
    let next_key = two(run("v1", 12, 23, true), run("v2", 30, 40, true));
    counts(&next_key, RunsCompleted, 2);
    let taken_over = two(run("v1", 12, 23, false), run("v1", 30, 40, true));
    counts(&taken_over, RunsCompleted, 1);
    // Another process may know of a completion before the one that ran.
    for at in [22, 30] {
        let history = two(run("v1", 12, 23, true), complete_before(at));
        counts(&history, RunsCompleteBefore, 1);
    }
    counts(&repeated(false).fault(FlushAll, 24, 25), RunsForgotten, 1);
}
