//! What was seen of Redis servers, and what follows of it.
//!
//! A check is a function over the facts of one server, or over those of all.

mod clocks;
mod identity;
mod memory;
mod persistence;
mod replicas;
mod rights;
#[cfg(test)]
mod samples;

use leasehold_core::Ttl;

use super::{Finding, Severity};
use crate::store::survey::{NodeFacts, Servers};

/// Judges servers that keep leases of this ttl.
pub(super) fn check(servers: &Servers, ttl: Ttl) -> Vec<Finding> {
    let mut findings = Vec::new();
    for node in &servers.nodes {
        let mut found = check_node(node, servers);
        if servers.nodes.len() > 1 {
            for finding in &mut found {
                finding.node = Some(node.name.clone());
            }
        }
        findings.append(&mut found);
    }
    findings.extend(clocks::between(&servers.nodes, ttl));
    findings.extend(identity::versions(&servers.nodes));
    findings
}

fn check_node(node: &NodeFacts, servers: &Servers) -> Vec<Finding> {
    let mut findings = identity::check(node, &servers.topology);
    if findings
        .iter()
        .any(|finding| finding.severity == Severity::Danger)
    {
        // What else there is to say is about a server that keeps no locks.
        return findings;
    }
    findings.extend(memory::check(node));
    findings.extend(persistence::check(node));
    findings.extend(replicas::check(node));
    findings.extend(rights::check(node, &servers.acl));
    findings.extend(clocks::check(node));
    findings
}
