//! Checks that a cluster serves all slots, and will continue to.

use std::time::Duration;

use leasehold_core::Ttl;

use super::{Finding, slow_failover};
use crate::store::diagnose::{ClusterFacts, ClusterMember, Fields, NodeFacts, QueryResult};

const CHECK: &str = "cluster";

const SLOTS: u64 = 16_384;

/// Fewer masters cannot agree on a failover when one of them is away.
const LEAST: usize = 3;

pub(super) fn check(
    facts: &QueryResult<ClusterFacts>,
    nodes: &[NodeFacts],
    ttl: Ttl,
) -> Vec<Finding> {
    let facts = match facts {
        Ok(facts) => facts,
        Err(message) if message.contains("cluster support disabled") => {
            let finding = Finding::danger(CHECK, "this is a single server, not a cluster")
                .because("no lock can be acquired by this URL")
                .fix("name the store redis://HOST");
            return vec![finding];
        }
        // See `missing_facts`.
        Err(_) => return Vec::new(),
    };
    let mut findings = vec![covered(&facts.info)];
    findings.extend(facts.members.iter().filter_map(failing));
    findings.extend(masters(&facts.members));
    findings.extend(timing(nodes, ttl));
    let partial = |config: &Fields| config.is("cluster-require-full-coverage", "yes");
    if nodes
        .iter()
        .filter_map(|node| node.config.as_ref().ok())
        .any(partial)
    {
        findings.push(
            Finding::note(CHECK, "cluster-require-full-coverage yes")
                .because("when one shard fails, the locks of all shards are lost, not only its own")
                .fix("CONFIG SET cluster-require-full-coverage no at each node, and in redis.conf"),
        );
    }
    findings
}

fn covered(info: &Fields) -> Finding {
    let state = info.get("cluster_state").unwrap_or("unknown");
    let assigned = info.number("cluster_slots_assigned").unwrap_or(0);
    let observed = format!("state {state}, {assigned} of {SLOTS} slots have an owner");
    if state == "ok" && assigned == SLOTS {
        return Finding::ok(CHECK, observed);
    }
    Finding::danger(CHECK, observed)
        .because("locks in a slot without a node cannot be acquired, renewed or released")
        .fix("redis-cli --cluster fix HOST:PORT, or bring the lost nodes back")
}

fn failing(member: &ClusterMember) -> Option<Finding> {
    let failed = member.is("fail") || member.is("fail?");
    let finding = Finding::warning(CHECK, "the other nodes regard it as failed")
        .because(
            "it does not take part until it is back; the cluster may not survive one more failure",
        )
        .fix("bring it back, or CLUSTER FORGET it")
        .at(member.name());
    failed.then_some(finding)
}

fn masters(members: &[ClusterMember]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let owners: Vec<_> = members
        .iter()
        .filter(|m| m.has_slots && !m.is("fail"))
        .collect();
    if owners.len() < LEAST {
        findings.push(
            Finding::warning(CHECK, format!("{} masters have slots", owners.len()))
                .because("a failover needs a majority of at least three masters")
                .fix("spread the slots over three masters or more"),
        );
    }
    let alone = |owner: &&&ClusterMember| {
        let follows = |member: &ClusterMember| {
            member.follows.as_deref() == Some(&*owner.id) && !member.is("fail")
        };
        !members.iter().any(follows)
    };
    let alone: Vec<_> = owners
        .iter()
        .filter(alone)
        .map(|owner| owner.name())
        .collect();
    if !alone.is_empty() {
        let finding = Finding::warning(CHECK, "no replica follows this master")
            .because("if it dies, its locks are lost, and no client can acquire them")
            .fix("let a replica follow it: CLUSTER REPLICATE ID");
        findings.push(finding.at(alone.join(", ")));
    }
    findings
}

fn timing(nodes: &[NodeFacts], ttl: Ttl) -> Option<Finding> {
    let config = nodes.iter().filter_map(|node| node.config.as_ref().ok());
    let millis = config
        .filter_map(|config| config.number("cluster-node-timeout"))
        .max()?;
    let set =
        |left| format!("CONFIG SET cluster-node-timeout {left} at each node, and in redis.conf");
    Some(slow_failover(
        "failover",
        Duration::from_millis(millis),
        ttl,
        set,
    ))
}
