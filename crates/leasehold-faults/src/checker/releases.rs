//! P6: after the store has confirmed a release, the lease never holds its record again.
//!
//! Only for processes without hand-off, where a release that has returned has reached the store. A request that was
//! repeated because the server was disturbed may be applied late and bring the lease back for a ttl; that is counted.

use std::collections::BTreeMap;

use super::facts::{Facts, Hold};
use super::report::{CheckReport, Count};
use crate::clock::Nanos;

/// When a lease was first requested, and when the last of its releases returned; `None` if one of them is not known to
/// be confirmed.
struct Release {
    requested: Nanos,
    returned: Option<Nanos>,
}

pub(super) fn check(facts: &Facts, report: &mut CheckReport) {
    let mut leases = BTreeMap::<&str, Release>::new();
    for hold in &facts.holds {
        if facts.processes[hold.process].handoff {
            continue;
        }
        let (requested, returned) = (hold.requested, returned(hold));
        leases
            .entry(&hold.lease)
            .and_modify(|lease| {
                lease.requested = lease.requested.min(requested);
                let both = lease.returned.zip(returned);
                lease.returned = both.map(|(one, other)| one.max(other));
            })
            .or_insert(Release {
                requested,
                returned,
            });
    }
    let observed = leases.values().filter(|lease| lease.returned.is_some());
    report.add(Count::ReleasesObserved, observed.count() as u64);
    for (at, sample) in &facts.samples {
        for (lease, _) in &sample.holds {
            let Some(Release {
                requested,
                returned: Some(returned),
            }) = leases.get(&**lease)
            else {
                continue;
            };
            if sample.from <= *returned {
                continue;
            }
            if facts.had_fault(*requested, *at, |event| event.fault.disturbs()) {
                report.add(Count::LateRequests, 1);
            } else {
                report.violation(format!(
                    "P6 {lease} was released at {returned}, but {sample:?}"
                ));
            }
        }
    }
}

fn returned(hold: &Hold) -> Option<Nanos> {
    let (at, outcome) = hold.released.as_ref()?;
    (outcome == "ok").then_some(*at)
}
