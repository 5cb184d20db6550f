//! P6: after a release has returned, the lease never holds its record again.
//!
//! Only for processes that hand nothing on: there a release that returned has reached the store. A
//! question that was asked twice because the server was disturbed may run late and bring the lease
//! back for what a ttl lasts; that is counted.

use std::collections::BTreeMap;

use super::facts::{Facts, Hold};
use super::verdict::Verdict;
use crate::clock::Nanos;

/// When a lease was first asked for, and when the last of its releases returned; `None` if one did
/// not return well.
struct Released {
    asked: Nanos,
    at: Option<Nanos>,
}

pub(super) fn check(facts: &Facts, verdict: &mut Verdict) {
    let mut leases = BTreeMap::<&str, Released>::new();
    for (hold, grant) in facts.granted() {
        if facts.processes[hold.process].handoff {
            continue;
        }
        let at = returned(hold);
        leases
            .entry(&grant.lease)
            .and_modify(|lease| {
                lease.asked = lease.asked.min(hold.asked);
                lease.at = lease.at.zip(at).map(|(one, other)| one.max(other));
            })
            .or_insert(Released {
                asked: hold.asked,
                at,
            });
    }
    let watched = leases.values().filter(|lease| lease.at.is_some());
    verdict.figures.releases_watched += watched.count() as u64;
    for sample in &facts.samples {
        for (lease, _) in &sample.holds {
            let Some(Released {
                asked,
                at: Some(at),
            }) = leases.get(&**lease)
            else {
                continue;
            };
            if sample.from <= *at {
                continue;
            }
            if facts.happened(*asked, sample.at, |happened| happened.fault.disturbs()) {
                verdict.figures.echoes += 1;
            } else {
                verdict.violation(format!("P6 {lease} was released at {at}, but {sample:?}"));
            }
        }
    }
}

fn returned(hold: &Hold) -> Option<Nanos> {
    let (at, how) = hold.left.as_ref()?;
    (how == "ok").then_some(*at)
}
