//! P5: a token is larger than every token granted before under its name.
//!
//! An acquisition that was requested after another was granted has a larger token, or re-enters the other's lease with
//! the same one. So has a hold that begins after another, unless the store forgot one of them in between. The loss of
//! the counter on a server whose clock was set back is the only excuse.
//!
//! Readers of one lock may have the same token as readers before them. The grants of permits may be observed in another
//! order than that of their tokens.

use leasehold_checker::{Grant, token_disorder};

use super::facts::{Facts, Hold};
use super::report::{CheckReport, Count};
use crate::clock::Nanos;
use crate::history::Fault;

pub(super) fn check(facts: &Facts, report: &mut CheckReport) {
    let names = facts.holds_by_name().into_values();
    for holds in names.chain(facts.shares_by_name().into_values()) {
        let holds = &*holds;
        for (earlier, later) in disorder(holds, |hold| Some((hold.requested, hold.granted))) {
            check_pair(facts, earlier, later, report);
        }
        if holds.iter().any(|hold| hold.has_permits()) {
            continue;
        }
        let begun = |hold: &Hold| Some(facts.hold_intervals(hold).first()?.0);
        for (earlier, later) in disorder(holds, |hold| Some((begun(hold)?, begun(hold)?))) {
            let since = facts.before_grant(earlier).min(facts.before_grant(later));
            let begun = begun(later).unwrap_or(0);
            if facts.keeps_grants || !facts.forgot(&later.name, since, begun) {
                check_pair(facts, earlier, later, report);
            }
        }
    }
}

/// The pairs of holds whose tokens are not in the order of the times that a function gives: before the grant and
/// after it.
fn disorder<'a>(
    holds: &[&'a Hold],
    times: impl Fn(&Hold) -> Option<(Nanos, Nanos)>,
) -> Vec<(&'a Hold, &'a Hold)> {
    let grant = |hold: &&'a Hold| {
        let (requested, granted) = times(hold)?;
        let grant = Grant {
            requested,
            granted,
            token: hold.token?,
            holder: match hold.reads() {
                true => "readers",
                false => &*hold.lease,
            },
        };
        Some((*hold, grant))
    };
    let (holds, grants): (Vec<_>, Vec<_>) = holds.iter().filter_map(grant).unzip();
    let pairs = token_disorder(&grants).into_iter();
    pairs
        .map(|(earlier, later)| (holds[earlier], holds[later]))
        .collect()
}

fn check_pair(facts: &Facts, earlier: &Hold, later: &Hold, report: &mut CheckReport) {
    if is_excused(facts, earlier, later.granted) {
        return report.add(Count::TokensForgotten, 1);
    }
    report.violation(format!(
        "P5 {} has token {}, {} before it had {}",
        facts.describe(later),
        later.token.unwrap_or_default(),
        facts.describe(earlier),
        earlier.token.unwrap_or_default(),
    ));
}

/// Whether the counter of a single server was lost after an earlier grant, and its clock set back at any time.
fn is_excused(facts: &Facts, earlier: &Hold, at: Nanos) -> bool {
    let lost = facts.had_fault(facts.before_grant(earlier), at, |event| {
        event.fault.forgets_counters() && event.hits(&earlier.name)
    });
    lost && !facts.keeps_grants && facts.had_fault(0, at, |event| event.fault == Fault::ClockBack)
}
