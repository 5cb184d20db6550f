//! Checks of a history.
//!
//! They share no code with the library. They know what holders observed and when, what the records and the fenced
//! resource showed, and when the store was made to forget. Each file names the promise of `docs/guarantees.md` that
//! it checks.

mod elections;
mod endings;
mod exclusion;
mod facts;
mod fencing;
mod jobs;
mod losses;
mod margins;
mod pauses;
mod releases;
mod report;
mod shares;
mod tokens;
mod watchdog;

#[cfg(test)]
mod tests;

pub(crate) use self::report::{CheckReport, Count, Margin};

use self::facts::Facts;
use crate::history::History;

/// Checks the history of one world.
pub(crate) fn check(history: &History) -> CheckReport {
    let facts = Facts::of(history);
    let mut report = CheckReport::default();
    facts.count(&mut report);
    let checks: [fn(&Facts, &mut CheckReport); 12] = [
        exclusion::check,
        shares::check,
        jobs::check,
        losses::check,
        margins::check,
        pauses::check,
        tokens::check,
        fencing::check,
        releases::check,
        elections::check,
        watchdog::check,
        endings::check,
    ];
    for check in checks {
        check(&facts, &mut report);
    }
    report
}
