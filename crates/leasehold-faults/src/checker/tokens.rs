//! P5: a token is larger than every token granted before under its name.
//!
//! An acquisition that was requested after another was granted has a larger token, or re-enters the other's lease with
//! the same one. So has a hold that begins after another, unless the store forgot one of them in between. The loss of
//! the counter on a server whose clock was set back is the only excuse.

use leasehold_checker::{Grant, token_disorder};

use super::facts::{self, Facts, Hold};
use super::report::{CheckReport, Count};
use crate::clock::Nanos;
use crate::history::Fault;

pub(super) fn check(facts: &Facts, report: &mut CheckReport) {
    for granted in facts.granted_by_name().values() {
        for (earlier, later) in disorder(granted, |hold, grant| Some((hold.requested, grant.at))) {
            check_pair(facts, earlier, later, report);
        }
        let begun = |hold: &Hold, _: &_| {
            let (from, _) = *facts.hold_intervals(hold).first()?;
            Some((from, from))
        };
        for (earlier, later) in disorder(granted, begun) {
            let since = facts.before_grant(earlier.0);
            let since = since.min(facts.before_grant(later.0));
            let begun = begun(later.0, later.1).map_or(0, |(from, _)| from);
            if facts.many || !facts.forgot(&later.0.name, since, begun) {
                check_pair(facts, earlier, later, report);
            }
        }
    }
}

type Granted<'a> = (&'a Hold, &'a facts::Grant);

/// The pairs of holds whose tokens are not in the order of the times that a function gives: before the grant and
/// after it.
fn disorder<'a>(
    granted: &[Granted<'a>],
    times: impl Fn(&Hold, &facts::Grant) -> Option<(Nanos, Nanos)>,
) -> Vec<(Granted<'a>, Granted<'a>)> {
    let (holds, grants): (Vec<_>, Vec<_>) = granted
        .iter()
        .filter_map(|(hold, grant)| {
            let (requested, granted) = times(hold, grant)?;
            let grant_times = Grant {
                requested,
                granted,
                token: grant.token,
                holder: &grant.lease,
            };
            Some(((*hold, *grant), grant_times))
        })
        .unzip();
    let pairs = token_disorder(&grants).into_iter();
    pairs
        .map(|(earlier, later)| (holds[earlier], holds[later]))
        .collect()
}

fn check_pair(facts: &Facts, earlier: Granted<'_>, later: Granted<'_>, report: &mut CheckReport) {
    if is_excused(facts, earlier.0, later.1.at) {
        return report.add(Count::TokensForgotten, 1);
    }
    report.violation(format!(
        "P5 {} has token {}, {} before it had {}",
        facts.describe(later.0),
        later.1.token,
        facts.describe(earlier.0),
        earlier.1.token,
    ));
}

/// Whether the counter of a single server was lost after an earlier grant, and its clock set back at any time.
fn is_excused(facts: &Facts, earlier: &Hold, at: Nanos) -> bool {
    let lost = facts.had_fault(facts.before_grant(earlier), at, |event| {
        event.fault.forgets_counters() && event.hits(&earlier.name)
    });
    lost && !facts.many && facts.had_fault(0, at, |event| event.fault == Fault::ClockBack)
}
