//! Facts that a server does not report to the user of the diagnosis.

use super::Finding;
use crate::store::diagnose::{Fields, NodeFacts, ServerFacts, Topology};

/// The finding that other checks lack facts about a server, and the user with the rights to read them.
pub(super) fn check(node: &NodeFacts, servers: &ServerFacts) -> Option<Finding> {
    let cluster = match &servers.topology {
        Topology::Cluster(Err(message)) => Some(message),
        _ => None,
    };
    let areas = areas(node, cluster.is_some());
    if areas.is_empty() {
        return None;
    }
    let commands = [
        ("INFO", node.info.as_ref().err()),
        ("CONFIG GET", node.config.as_ref().err()),
        ("CLUSTER INFO", cluster),
    ];
    let refused = commands.iter().filter(|(_, message)| message.is_some());
    let refused: Vec<_> = refused.map(|(command, _)| *command).collect();
    let message = commands.iter().find_map(|(_, message)| *message);
    let why = match message {
        Some(message) => format!("refused: {}; {message}", refused.join(", ")),
        None => "the server does not report it".to_owned(),
    };
    let observed = format!("not checked: {} ({why})", areas.join(", "));
    let finding = Finding::unknown(Finding::INCOMPLETE, observed)
        .because("settings under which held locks are evicted or forgotten would not be found")
        .fix(format!(
            "run doctor as a user of its own that may read settings: {}",
            servers.diagnosis_acl
        ));
    Some(finding)
}

/// The areas whose checks lack a fact.
fn areas(node: &NodeFacts, lacks_cluster: bool) -> Vec<&'static str> {
    let (info, config) = (node.info.as_ref().ok(), node.config.as_ref().ok());
    let has = |fields: Option<&Fields>, name| fields.is_some_and(|it| it.get(name).is_some());
    let limit = has(config, "maxmemory") || has(info, "maxmemory");
    let areas = [
        ("version", info.is_some()),
        ("role", has(info, "role")),
        (
            "eviction",
            has(config, "maxmemory-policy") || has(info, "maxmemory_policy"),
        ),
        ("memory", has(info, "used_memory") && limit),
        ("persistence", has(config, "appendonly") && info.is_some()),
        ("replicas", has(info, "role")),
        ("clock", node.clock.is_some()),
        ("cluster", !lacks_cluster),
    ];
    let missing = areas.iter().filter(|(_, is_present)| !is_present);
    missing.map(|(area, _)| *area).collect()
}
