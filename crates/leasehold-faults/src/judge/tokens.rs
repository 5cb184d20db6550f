//! P5: a token is larger than every token granted before under its name.
//!
//! What is checked: who asked after another was granted has a larger token, or enters the other's
//! lease again with the same one; and so has who begins to believe after another, unless the store
//! forgot one of the two in between. Only a counter that was forgotten on a server whose clock was set back excuses
//! less.

use std::collections::BTreeMap;

use super::facts::{Facts, Grant, Hold};
use super::verdict::Verdict;
use crate::clock::Nanos;
use crate::history::Fault;

type Granted<'a> = (&'a Hold, &'a Grant);

pub(super) fn check(facts: &Facts, verdict: &mut Verdict) {
    let mut names = BTreeMap::<&str, Vec<Granted<'_>>>::new();
    for (hold, grant) in facts.granted() {
        names.entry(&hold.name).or_default().push((hold, grant));
    }
    for granted in names.values() {
        by_question(facts, granted, verdict);
        by_belief(facts, granted, verdict);
    }
}

fn by_question(facts: &Facts, asked: &[Granted<'_>], verdict: &mut Verdict) {
    let mut granted = asked.to_vec();
    granted.sort_by_key(|(_, grant)| grant.at);
    let mut granted = granted.into_iter().peekable();
    let mut largest: Option<Granted<'_>> = None;
    for later in asked {
        while let Some(earlier) = granted.next_if(|(_, grant)| grant.at < later.0.asked) {
            if largest.is_none_or(|(_, grant)| grant.token < earlier.1.token) {
                largest = Some(earlier);
            }
        }
        if let Some(earlier) = largest {
            compare(facts, earlier, *later, verdict);
        }
    }
}

fn by_belief(facts: &Facts, granted: &[Granted<'_>], verdict: &mut Verdict) {
    let mut believed: Vec<(Nanos, Granted<'_>)> = Vec::new();
    for granted in granted {
        if let Some((from, _)) = granted.0.beliefs().first() {
            believed.push((*from, *granted));
        }
    }
    believed.sort_by_key(|(from, _)| *from);
    let mut largest: Option<Granted<'_>> = None;
    for (from, later) in believed {
        if let Some(earlier) = largest {
            let granted = facts.before_grant(earlier.0);
            let granted = granted.min(facts.before_grant(later.0));
            if facts.many || !facts.forgot(&later.0.name, granted, from) {
                compare(facts, earlier, later, verdict);
            }
        }
        if largest.is_none_or(|(_, grant)| grant.token < later.1.token) {
            largest = Some(later);
        }
    }
}

fn compare(facts: &Facts, earlier: Granted<'_>, later: Granted<'_>, verdict: &mut Verdict) {
    let same_lease = earlier.1.lease == later.1.lease;
    if later.1.token > earlier.1.token || (same_lease && later.1.token == earlier.1.token) {
        return;
    }
    if excused(facts, earlier.0, later.1.at) {
        verdict.figures.tokens_forgotten += 1;
        return;
    }
    verdict.violation(format!(
        "P5 {} has token {}, {} before it had {}",
        facts.describe(later.0),
        later.1.token,
        facts.describe(earlier.0),
        earlier.1.token,
    ));
}

/// Whether the counter of a single server was lost after an earlier grant, and its clock set back at any
/// time.
pub(super) fn excused(facts: &Facts, earlier: &Hold, at: Nanos) -> bool {
    let lost = facts.happened(facts.before_grant(earlier), at, |happened| {
        happened.fault.forgets_counters() && happened.hits(&earlier.name)
    });
    lost && !facts.many && facts.happened(0, at, |happened| happened.fault == Fault::ClockBack)
}
