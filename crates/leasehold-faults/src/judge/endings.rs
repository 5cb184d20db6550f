//! P8: nothing is left behind, and every process ends as it should.

use super::facts::{Facts, Hold};
use super::verdict::Verdict;

pub(super) fn check(facts: &Facts, verdict: &mut Verdict) {
    for failure in &facts.failures {
        verdict.violation(format!("a holder process failed: {failure}"));
    }
    for process in &facts.processes {
        if process.complaint.contains("panicked") {
            let (name, complaint) = (&process.name, process.complaint.trim());
            verdict.violation(format!("process {name}: {complaint}"));
        }
    }
    for (key, left_ms) in &facts.left_behind {
        verdict.violation(format!(
            "P8 the key {key} is left when every ttl has passed, with {left_ms} ms to go"
        ));
    }
    for (name, lease) in &facts.at_the_end {
        left_by_shutdown(facts, name, lease, verdict);
    }
}

/// A shutdown releases what is held. A lease that its holder had lost is left to its ttl: after a loss,
/// or if a hold that was entered again lengthened the record of a fixed lease, that may not be over.
fn left_by_shutdown(facts: &Facts, name: &str, lease: &str, verdict: &mut Verdict) {
    let client = |lease: &str| lease.split(':').next().map(str::to_owned);
    let mut granted = facts.granted();
    let of_client = granted.find(|(_, grant)| client(&grant.lease) == client(lease));
    let Some(process) = of_client.map(|(hold, _)| &facts.processes[hold.process]) else {
        return;
    };
    let Some(ended) = process.released else {
        return;
    };
    let mut holds = facts.granted().filter(|(_, grant)| grant.lease == lease);
    let over = |hold: &Hold| hold.lost().is_some() || hold.promised().unwrap_or(0) < ended;
    if !holds.any(|(hold, _)| over(hold)) {
        let process = &process.name;
        verdict.violation(format!(
            "P8 process {process} released everything and ended, but {lease} holds {name:?}"
        ));
    }
}
