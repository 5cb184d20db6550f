//! Checks of many independent masters.

use super::Finding;
use crate::store::diagnose::{Fields, NodeFacts};

const CHECK: &str = "masters";

/// With fewer masters, the majority is all of them.
const LEAST: usize = 3;

/// `silent` is the number of further masters that do not reply.
pub(super) fn check(nodes: &[NodeFacts], silent: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    let count = nodes.len() + silent;
    for (at, node) in nodes.iter().enumerate() {
        let id = |node: &NodeFacts| Some(node.info.as_ref().ok()?.get("run_id")?.to_owned());
        let twin = nodes[..at]
            .iter()
            .find(|twin| id(twin).is_some() && id(twin) == id(node));
        if let Some(twin) = twin {
            let observed = format!("{} and {} are one server", twin.name, node.name);
            findings.push(
                Finding::danger(CHECK, observed)
                    .because("its one vote counts twice")
                    .fix("name each server once in the store URL"),
            );
        }
    }
    let able = nodes.iter().filter(|node| can_grant(node)).count();
    let majority = count / 2 + 1;
    let observed = format!("{able} of {count} nodes reply and accept writes");
    findings.push(match count {
        _ if able < majority => Finding::danger(CHECK, observed)
            .because("that is not a majority: no lock can be acquired or renewed")
            .fix("bring the others back"),
        _ if count < LEAST => Finding::danger(CHECK, format!("{count} nodes"))
            .because("no majority remains when one of them fails")
            .fix("name three or five masters"),
        _ if able < count => Finding::warning(CHECK, observed)
            .because(match able - majority {
                0 => "locks are granted only until one more fails".to_owned(),
                spare => format!("locks are granted only until {} more fail", spare + 1),
            })
            .fix("bring the others back"),
        _ if count.is_multiple_of(2) => Finding::note(CHECK, format!("{count} nodes"))
            .because("an even number tolerates no more failures than one master fewer")
            .fix("name three or five masters"),
        _ => Finding::ok(
            CHECK,
            format!("{count} nodes, {} may be away", (count - 1) / 2),
        ),
    });
    findings
}

fn can_grant(node: &NodeFacts) -> bool {
    let is_loading = |info: &Fields| info.is("loading", "1");
    node.rights.blocked.is_none() && !node.is_replica() && !node.info.as_ref().is_ok_and(is_loading)
}
