//! P2: a holder reads `Lost` before another can hold the name, and by how much.
//!
//! Only where the server's clock was left alone: the token of a grant is its time.

use std::collections::BTreeMap;

use super::facts::{Facts, Grant, Hold};
use super::verdict::Verdict;
use crate::clock::{MILLI, Nanos};

/// By how much a token may say that its grant was earlier than it was: the tokens count whole
/// microseconds, and the two clocks are not read at one instant.
const TOLERANCE: i64 = MILLI.cast_signed() / 10;

/// A lease and its holds, from its grant in the store on.
struct Granted<'a> {
    at: Nanos,
    holds: Vec<(&'a Hold, &'a Grant)>,
}

pub(super) fn check(facts: &Facts, verdict: &mut Verdict) {
    let mut names = BTreeMap::<&str, BTreeMap<Nanos, Granted<'_>>>::new();
    for (hold, grant) in facts.granted() {
        let Some(at) = facts.granted_at(&grant.lease) else {
            return;
        };
        let leases = names.entry(&*hold.name).or_default();
        let holds = Vec::new();
        let lease = leases.entry(at).or_insert(Granted { at, holds });
        lease.holds.push((hold, grant));
    }
    for leases in names.values() {
        for (lease, next) in leases.values().zip(leases.values().skip(1)) {
            pass_on(facts, lease, next.at, verdict);
        }
    }
}

/// Measures what was left between the end of a lease and the next grant.
fn pass_on(facts: &Facts, lease: &Granted<'_>, next: Nanos, verdict: &mut Verdict) {
    let stays = |(hold, _): &&(&Hold, &Grant)| hold.leaving.is_none_or(|leaving| leaving > next);
    let staying: Vec<_> = lease.holds.iter().filter(stays).collect();
    for (hold, grant) in &staying {
        let Some(promised) = hold.promised() else {
            continue;
        };
        if facts.granted_twice(hold, lease.at.saturating_sub(MILLI), next) {
            continue;
        }
        let margin = next.cast_signed() - promised.cast_signed();
        if margin < -TOLERANCE {
            verdict.violation(format!(
                "P2 {} was promised {:?} until {promised}, but it was granted to another at {next}",
                facts.describe(hold),
                hold.name,
            ));
        }
        if hold.fixed {
            verdict.figures.margins_fixed.push(margin);
            continue;
        }
        verdict.figures.margins_renewed.push(margin);
        if lease.holds.len() == 1 {
            let of_ttl = margin * 1000 / grant.ttl.max(1).cast_signed();
            verdict.figures.margins_of_ttl.push(of_ttl);
            if margin + TOLERANCE < grant.ttl.cast_signed() / 3 {
                verdict.violation(format!(
                    "P2 {} had less than a third of its ttl: promised until {promised}, \
                     granted to another at {next}",
                    facts.describe(hold),
                ));
            }
        }
        told(facts, hold, next, verdict);
    }
}

/// Whether the holder of a renewed lease was told of its loss before the next grant, as long as its
/// process ran.
fn told(facts: &Facts, hold: &Hold, next: Nanos, verdict: &mut Verdict) {
    let Some(lost) = hold.lost() else {
        return;
    };
    let stalls = &facts.processes[hold.process].stalls;
    let promised = hold.promised().unwrap_or(0);
    if stalls
        .iter()
        .any(|(from, to)| *from < lost.at && *to > promised.min(next))
    {
        return;
    }
    let margin = next.cast_signed() - lost.at.cast_signed();
    verdict.figures.margins_told.push(margin);
    if margin < 0 {
        verdict.violation(format!(
            "P2 {} was told of its loss at {}, after the next grant at {next}",
            facts.describe(hold),
            lost.at,
        ));
    }
}
