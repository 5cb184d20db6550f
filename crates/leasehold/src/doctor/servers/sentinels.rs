//! Checks of sentinels, and of the time that a failover takes.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_core::Ttl;

use super::{Finding, slow_failover};
use crate::doctor::finding::count;
use crate::store::diagnose::{Fields, NodeFacts, SentinelFacts};

const CHECK: &str = "sentinels";

/// Fewer cannot agree when one of them fails.
const LEAST: u64 = 3;

pub(super) fn check(sentinels: &[SentinelFacts], ttl: Ttl) -> Vec<Finding> {
    let mut findings = Vec::new();
    for watch in sentinels {
        if let Err(message) = &watch.master {
            let finding = Finding::warning(CHECK, format!("it does not name the master: {message}"))
                .because("the others must agree without it, and clients have fewer sources of failover notifications")
                .fix("bring it back, or take it out of the store URL");
            findings.push(finding.at(&watch.name));
        }
    }
    let known = sentinels
        .iter()
        .filter_map(|watch| Some((watch, watch.master.as_ref().ok()?)));
    let known: Vec<_> = known.collect();
    findings.extend(differ(&known));
    for (watch, master) in &known {
        findings.extend(down(master).map(|finding| finding.at(&watch.name)));
    }
    let Some((_, master)) = known
        .iter()
        .max_by_key(|(_, master)| master.number("config-epoch"))
    else {
        return findings;
    };
    findings.extend(size(master, sentinels.len()));
    let name = master.get("name").unwrap_or("MASTER");
    if let Some(millis) = known
        .iter()
        .filter_map(|(_, m)| m.number("down-after-milliseconds"))
        .max()
    {
        let set =
            |left| format!("SENTINEL SET {name} down-after-milliseconds {left} at each sentinel");
        findings.push(slow_failover(
            "failover",
            Duration::from_millis(millis),
            ttl,
            set,
        ));
    }
    findings
}

/// The finding that all servers are replicas. A server that does not report its role may be the master.
pub(super) fn no_master(nodes: &[NodeFacts]) -> Option<Finding> {
    let replicas = nodes.iter().all(NodeFacts::is_replica);
    let finding = Finding::danger(CHECK, "the master does not reply")
        .because("no lock can be acquired or renewed until it is back, or another is promoted")
        .fix("bring it back; if none is promoted, check the sentinels");
    replicas.then_some(finding)
}

/// The finding that sentinels name different masters.
fn differ(known: &[(&SentinelFacts, &Fields)]) -> Option<Finding> {
    let place = |master: &Fields| {
        let (host, port) = (master.get("ip")?, master.get("port")?);
        Some(format!("{host}:{port}"))
    };
    let places: BTreeSet<_> = known
        .iter()
        .filter_map(|(_, master)| place(master))
        .collect();
    if places.len() < 2 {
        return None;
    }
    let places: Vec<_> = places.into_iter().collect();
    let finding = Finding::danger(
        CHECK,
        format!("they name different masters: {}", places.join(", ")),
    )
    .because("two servers may grant one lock")
    .fix("wait until the failover is over; otherwise check that the sentinels reach each other");
    Some(finding)
}

fn down(master: &Fields) -> Option<Finding> {
    let flags = master.get("flags")?;
    let down = flags
        .split(',')
        .any(|flag| matches!(flag, "s_down" | "o_down"));
    let finding = Finding::danger(CHECK, format!("it regards the master as down ({flags})"))
        .because("it may be that no lock is granted until another is promoted")
        .fix("check the master, and the network between them");
    down.then_some(finding)
}

fn size(master: &Fields, named: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    let sentinels = master.number("num-other-sentinels").unwrap_or(0) + 1;
    let quorum = master.number("quorum").unwrap_or(0);
    let name = master.get("name").unwrap_or("MASTER");
    let majority = sentinels / 2 + 1;
    let observed = format!("{}, quorum {quorum}", count(sentinels, "sentinel"));
    findings.push(if quorum > sentinels {
        Finding::danger(CHECK, observed)
            .because("they can never agree that the master is down: there is no failover")
            .fix(format!("SENTINEL SET {name} quorum {majority} at each sentinel"))
    } else if sentinels < LEAST {
        Finding::warning(CHECK, observed)
            .because("when one of them fails, no failover is possible")
            .fix("run three sentinels or more, on machines of their own")
    } else if quorum < majority {
        Finding::note(CHECK, observed)
            .because("a minority may begin a failover of a master that is only unreachable for that minority")
            .fix(format!("SENTINEL SET {name} quorum {majority} at each sentinel"))
    } else {
        Finding::ok(CHECK, observed)
    });
    if u64::try_from(named).unwrap_or(u64::MAX) < sentinels {
        findings.push(
            Finding::note(CHECK, format!("the store URL names {named} of {sentinels}"))
                .because("a client that cannot reach the named ones is not notified of failovers")
                .fix("name all of them in the store URL"),
        );
    }
    if master.number("num-slaves") == Some(0) {
        findings.push(
            Finding::warning("replicas", "the sentinels know no replica")
                .because("when the master dies, no server can replace it")
                .fix("let a replica follow the master"),
        );
    }
    findings
}
