//! Clocks of servers, against each other.

use leasehold_core::{Ttl, time};

use super::Finding;
use crate::doctor::clock::{self, CHECK, KEEP, certainly};
use crate::store::diagnose::{NodeFacts, Topology};

/// The offsets of the nodes from each other: after a failover a lease is measured by another clock, and many
/// masters propose tokens by their clocks.
pub(super) fn between(nodes: &[NodeFacts], ttl: Ttl, topology: &Topology) -> Option<Finding> {
    let clocks = nodes.iter().filter_map(|node| Some((node, node.clock?)));
    let first = clocks.clone().min_by_key(|(_, clock)| clock.ahead)?;
    let last = clocks.max_by_key(|(_, clock)| clock.ahead)?;
    let apart = last.1.ahead - first.1.ahead;
    let error = last.1.error + first.1.error;
    let off = certainly(apart, error);
    let drift = time::drift(ttl.as_duration());
    if nodes.len() < 2 {
        return None;
    }
    let observed = format!(
        "the clocks of {} and {} are {} apart (+/- {})",
        first.0.name,
        last.0.name,
        clock::time(apart),
        clock::time(error)
    );
    if off <= drift {
        return Some(Finding::ok(CHECK, observed));
    }
    if matches!(topology, Topology::Masters) {
        // A lease ends at each master by that master's clock, so a constant offset ends none early.
        let finding = Finding::warning(CHECK, observed).because(
            "a master that is ahead takes no proposed token, so that locks need a second round trip; \
             one whose clock is set forward drops out of every majority",
        );
        return Some(finding.fix(KEEP));
    }
    let third = ttl.as_duration() / 3;
    let because = format!(
        "when another node takes over, leases end earlier or later by as much; {} are allowed for",
        clock::time(i64::try_from(drift.as_micros()).unwrap_or(i64::MAX))
    );
    let finding = match off > third {
        true => Finding::danger(CHECK, observed),
        false => Finding::warning(CHECK, observed),
    };
    Some(finding.because(because).fix(KEEP))
}
