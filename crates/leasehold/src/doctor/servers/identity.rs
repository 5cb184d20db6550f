//! The version, the mode and the role of a server.

use std::collections::BTreeSet;

use super::{Finding, Severity};
use crate::store::diagnose::{Fields, NodeFacts, Topology};

/// The first version that can find a waiter in a queue.
const QUEUE_SINCE: [u64; 3] = [6, 0, 6];

/// The finding that a server cannot keep locks, because of its mode or role.
pub(super) fn unfit(node: &NodeFacts, topology: &Topology) -> Option<Finding> {
    let info = node.info.as_ref().ok()?;
    let mut finding = mode(info, topology).or_else(|| role(info, topology))?;
    if matches!(topology, Topology::Masters) {
        // The others can still be a majority: see `masters`.
        finding.severity = Severity::Warning;
        finding.consequence = Some("it takes no part: the others must agree without it".into());
    }
    Some(finding)
}

/// The finding about the version, if the server shows it.
pub(super) fn version(node: &NodeFacts) -> Option<Finding> {
    let info = node.info.as_ref().ok()?;
    let observed = name(info);
    Some(match number(info) {
        Some(version) if version < QUEUE_SINCE => Finding::warning("version", observed)
            .because(
                "it has no queues: waiters retry at intervals, and the first retry after a release \
                 wins",
            )
            .fix("upgrade to Redis 7 or later"),
        Some(_) => Finding::ok("version", observed),
        None => Finding::note("version", observed)
            .because("its features cannot be known in advance")
            .fix("use Redis 7 or later"),
    })
}

/// The finding that nodes have different versions.
pub(super) fn versions(nodes: &[NodeFacts]) -> Option<Finding> {
    let known = nodes.iter().filter_map(|node| node.info.as_ref().ok());
    let versions: BTreeSet<String> = known.map(name).collect();
    if versions.len() < 2 {
        return None;
    }
    let versions: Vec<_> = versions.into_iter().collect();
    let observed = format!("the nodes differ: {}", versions.join(", "));
    let finding = Finding::warning("version", observed)
        .because("a feature of one node may be missing in another")
        .fix("bring all nodes to one version");
    Some(finding)
}

fn mode(info: &Fields, topology: &Topology) -> Option<Finding> {
    let mode = info.get("redis_mode").or_else(|| info.get("server_mode"))?;
    let (is, scheme) = match (mode, topology) {
        ("sentinel", _) => (
            "this is a sentinel, not a server",
            "redis+sentinel://HOST,HOST,HOST/MASTER",
        ),
        ("cluster", Topology::Single | Topology::Sentinel(_) | Topology::Masters) => (
            "this is a node of a cluster",
            "redis+cluster://HOST,HOST,HOST",
        ),
        ("standalone", Topology::Cluster(_)) => {
            ("this is a single server, not a cluster", "redis://HOST")
        }
        _ => return None,
    };
    let finding = Finding::danger("mode", is)
        .because("no lock can be acquired by this URL")
        .fix(format!("name the store {scheme}"));
    Some(finding)
}

fn role(info: &Fields, topology: &Topology) -> Option<Finding> {
    let alone = matches!(topology, Topology::Single | Topology::Masters);
    if alone && info.is("role", "slave") {
        let master = match (info.get("master_host"), info.get("master_port")) {
            (Some(host), Some(port)) => format!(" of {host}:{port}"),
            _ => String::new(),
        };
        let finding = Finding::danger("role", format!("this is a read-only replica{master}"))
            .because("no lock can be acquired there")
            .fix("name its master in the store URL, or the sentinels that know it");
        return Some(finding);
    }
    if info.is("loading", "1") {
        let finding = Finding::danger("role", "the server is still loading its data")
            .because("it replies to no client until it is done")
            .fix("wait, then run doctor again");
        return Some(finding);
    }
    None
}

fn name(info: &Fields) -> String {
    match (info.get("valkey_version"), info.get("redis_version")) {
        (Some(version), _) => format!("Valkey {version}"),
        (None, Some(version)) => format!("Redis {version}"),
        (None, None) => "a server without a version".to_owned(),
    }
}

/// The version of Redis, or the one with which another server claims to be compatible.
pub(super) fn number(info: &Fields) -> Option<[u64; 3]> {
    let mut parts = info.get("redis_version")?.split('.');
    let mut part = || parts.next()?.parse().ok();
    Some([part()?, part()?, part()?])
}
