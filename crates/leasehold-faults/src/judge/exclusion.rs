//! P1: at most one holder of a name believes in it at any time, and the store's record is of the
//! same opinion.

use std::collections::BTreeMap;

use super::facts::{Facts, Hold, Sample};
use super::verdict::Verdict;
use crate::clock::Nanos;

/// A time in which a hold is believed in.
struct Belief<'a> {
    from: Nanos,
    to: Nanos,
    hold: &'a Hold,
    /// Holds of one owner over one lease share their lease and their token.
    identity: (&'a str, u64),
}

pub(super) fn check(facts: &Facts, verdict: &mut Verdict) {
    for beliefs in by_name(facts).values() {
        overlaps(facts, beliefs, verdict);
    }
    let beliefs = by_name(facts);
    for sample in &facts.samples {
        if let Some(beliefs) = beliefs.get(&*sample.name) {
            compare(facts, sample, beliefs, verdict);
        }
    }
}

/// The beliefs of each name in the order in which they begin.
fn by_name(facts: &Facts) -> BTreeMap<&str, Vec<Belief<'_>>> {
    let mut names = BTreeMap::<_, Vec<_>>::new();
    for (hold, grant) in facts.granted() {
        for (from, to) in hold.beliefs() {
            names.entry(&*hold.name).or_default().push(Belief {
                from,
                to,
                hold,
                identity: (&grant.lease, grant.token),
            });
        }
    }
    for beliefs in names.values_mut() {
        beliefs.sort_by_key(|belief| belief.from);
    }
    names
}

fn overlaps(facts: &Facts, beliefs: &[Belief<'_>], verdict: &mut Verdict) {
    let mut open: Vec<&Belief<'_>> = Vec::new();
    for belief in beliefs {
        open.retain(|other| other.to > belief.from);
        for other in &open {
            if other.identity == belief.identity {
                continue;
            }
            let granted = facts.before_grant(other.hold);
            let granted = granted.min(facts.before_grant(belief.hold));
            let forgot = |hold| facts.granted_twice(hold, granted, belief.from);
            if forgot(other.hold) || forgot(belief.hold) {
                verdict.figures.overlaps_forgotten += 1;
            } else {
                verdict.violation(format!(
                    "P1 two believe in {:?} at {}: {} until {}, {} until {}",
                    belief.hold.name,
                    belief.from,
                    facts.describe(other.hold),
                    other.to,
                    facts.describe(belief.hold),
                    belief.to,
                ));
            }
        }
        open.push(belief);
    }
}

/// Compares a record with the one who believes while it is looked at.
fn compare(facts: &Facts, sample: &Sample, beliefs: &[Belief<'_>], verdict: &mut Verdict) {
    if sample.left_ms == -1 && !sample.holds.is_empty() {
        let name = &sample.name;
        verdict.violation(format!("P8 the record of {name:?} has no end: {sample:?}"));
    }
    if sample.holds.len() > 1 {
        verdict.violation(format!("P1 the record has two leases: {sample:?}"));
    }
    if facts.many {
        // The masters are not looked at in one instant, and one that has forgotten does not say so.
        return;
    }
    let begun = beliefs.partition_point(|belief| belief.from <= sample.from);
    for belief in beliefs[..begun]
        .iter()
        .filter(|belief| belief.to >= sample.at)
    {
        verdict.figures.samples_compared += 1;
        let (lease, _) = belief.identity;
        if sample.holds.iter().any(|(holds, _)| holds == lease) {
            continue;
        }
        let granted = facts.before_grant(belief.hold);
        if !facts.forgot_hold(belief.hold, granted, sample.at) {
            verdict.violation(format!(
                "P1 {} believes in {:?} from {} to {}, but the record is {sample:?}",
                facts.describe(belief.hold),
                sample.name,
                belief.from,
                belief.to,
            ));
        }
    }
}
