//! Checks of Redis servers.
//!
//! A check is a function of the facts about one server, or about all.

mod clocks;
mod cluster;
mod identity;
mod masters;
mod memory;
mod missing_facts;
mod persistence;
mod replicas;
mod rights;
mod sentinels;

use std::time::Duration;

use leasehold_core::Ttl;
use leasehold_core::time::in_units;

use super::{Finding, Severity, clock};
use crate::store::diagnose::{NodeFacts, ServerFacts, Topology};

/// The duration of a failover without its detection: measured, and rounded up.
const FAILOVER: Duration = Duration::from_secs(2);

/// Checks servers that keep leases of this ttl.
pub(super) fn check(servers: &ServerFacts, ttl: Ttl) -> Vec<Finding> {
    let mut findings = Vec::new();
    match &servers.topology {
        Topology::Single => {}
        Topology::Sentinel(sentinels) => {
            findings.extend(sentinels::check(sentinels, ttl));
            findings.extend(sentinels::no_master(&servers.nodes));
        }
        Topology::Cluster(facts) => findings.extend(cluster::check(facts, &servers.nodes, ttl)),
        Topology::Masters => {
            findings.extend(masters::check(&servers.nodes, servers.silent.len()));
            findings.extend(persistence::of_majority(
                &servers.nodes,
                servers.silent.len(),
            ));
        }
    }
    findings.extend(servers.silent.iter().map(|(name, why)| silent(name, why)));
    let checked = servers.nodes.iter().map(|node| check_node(node, servers));
    let names = servers.nodes.iter().map(|node| &*node.name);
    findings.extend(merge(names.zip(checked).collect()));
    findings.extend(clocks::between(&servers.nodes, ttl, &servers.topology));
    findings.extend(identity::versions(&servers.nodes));
    findings
}

fn check_node(node: &NodeFacts, servers: &ServerFacts) -> Vec<Finding> {
    let topology = &servers.topology;
    if let Some(unfit) = identity::unfit(node, topology) {
        // The other checks are meaningless for a server that cannot keep locks.
        return vec![unfit];
    }
    let mut findings = Vec::new();
    findings.extend(missing_facts::check(node, servers));
    findings.extend(identity::version(node));
    findings.extend(memory::check(node));
    findings.extend(persistence::check(node, topology));
    if !node.is_replica() {
        findings.extend(replicas::check(node, topology));
    }
    findings.extend(rights::check(node, topology, &servers.acl));
    findings.extend(node.clock.map(clock::check));
    findings
}

fn silent(name: &str, why: &str) -> Finding {
    Finding::unknown("node", format!("not checked: {why}"))
        .because(
            "its risks are not known; if clients do not reach it either, one more failure may \
             cost locks",
        )
        .fix("bring it back, or take it out of the deployment")
        .at(name)
}

/// Merges the same finding of several nodes into one with their names, and of all nodes into one without.
fn merge(nodes: Vec<(&str, Vec<Finding>)>) -> Vec<Finding> {
    let count = nodes.len();
    let mut merged: Vec<(Finding, Vec<&str>)> = Vec::new();
    for (name, findings) in nodes {
        for finding in findings {
            // Every clock has some offset, which is worth a finding only if it is large.
            if count > 1 && finding.check == clock::CHECK && finding.severity == Severity::Ok {
                continue;
            }
            match merged.iter_mut().find(|(known, _)| *known == finding) {
                Some((_, names)) => names.push(name),
                None => merged.push((finding, vec![name])),
            }
        }
    }
    let merged = merged.into_iter();
    merged
        .map(|(mut finding, names)| {
            finding.node = (names.len() < count).then(|| names.join(", "));
            finding
        })
        .collect()
}

/// Checks whether a failover is short enough for leases. A renewal is due a third of the ttl after the last
/// one, and the lease is lost at two thirds. `fix` makes a setting of a time in milliseconds.
fn slow_failover(
    check: &'static str,
    down_after: Duration,
    ttl: Ttl,
    fix: impl Fn(u128) -> String,
) -> Finding {
    let room = ttl.as_duration() / 3;
    let takes = down_after + FAILOVER;
    let observed = format!(
        "a failover takes about {}, with a ttl of {ttl}",
        in_units(takes)
    );
    if takes <= room {
        return Finding::ok(check, observed);
    }
    let longer = format!("use a ttl of {} or longer", in_units(takes * 3));
    let fix = match room.checked_sub(FAILOVER) {
        Some(left) if left >= Duration::from_millis(500) => {
            format!("{}, or {longer}", fix(left.as_millis()))
        }
        _ => longer,
    };
    Finding::warning(check, observed)
        .because(
            "holders cannot renew meanwhile for long enough, and lose their locks in a failover",
        )
        .fix(fix)
}

#[cfg(test)]
mod tests;
