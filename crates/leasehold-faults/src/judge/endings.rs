//! P8: nothing is left behind, and every process ends as it should.

use super::facts::Facts;
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
        let client = |lease: &str| lease.split(':').next().map(str::to_owned);
        let mut of_client = facts
            .granted()
            .filter(|(_, grant)| client(&grant.lease) == client(lease));
        let Some((hold, _)) = of_client.next() else {
            continue;
        };
        let process = &facts.processes[hold.process];
        if process.released {
            let process = &process.name;
            verdict.violation(format!(
                "P8 process {process} released everything and ended, but {lease} holds {name:?}"
            ));
        }
    }
}
