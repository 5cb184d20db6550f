//! Checks of eviction and the memory limit.

use super::Finding;
use crate::store::diagnose::NodeFacts;

/// The percentage of its memory limit from which a server is nearly full.
const NEARLY_FULL: u64 = 90;

const FIX: &str = "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf";

pub(super) fn check(node: &NodeFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Ok(info) = &node.info else {
        return findings;
    };
    // INFO also has both, and more users may read it.
    let either = |setting: &str, field: &str| {
        let config = node.config.as_ref().ok();
        let set = config.and_then(|config| config.get(setting));
        set.or_else(|| info.get(field))
    };
    let policy = either("maxmemory-policy", "maxmemory_policy");
    let limit = either("maxmemory", "maxmemory").and_then(|limit| limit.parse::<u64>().ok());
    let evicted = info.number("evicted_keys").unwrap_or(0);
    match (policy, limit) {
        (Some("noeviction"), _) => findings.push(Finding::ok("eviction", "noeviction")),
        (Some(policy), Some(0)) => findings.push(
            Finding::note("eviction", format!("{policy}, without a memory limit"))
                .because("as soon as maxmemory is set, locks may be evicted")
                .fix(FIX),
        ),
        (Some(policy), _) => findings.push(
            Finding::danger(
                "eviction",
                format!("{policy}, {evicted} keys evicted so far"),
            )
            .because("a lock can be evicted while it is held, and another client acquires it immediately")
            .fix(FIX),
        ),
        (None, _) => {}
    }
    findings.extend(full(info.number("used_memory"), limit));
    findings
}

fn full(used: Option<u64>, limit: Option<u64>) -> Option<Finding> {
    let (used, limit) = (used?, limit?);
    if limit == 0 {
        return Some(Finding::ok("memory", "no limit of its own"));
    }
    let percent = used.saturating_mul(100) / limit;
    let observed = format!("{percent} % of maxmemory {limit} are used");
    if percent < NEARLY_FULL {
        return Some(Finding::ok("memory", observed));
    }
    let finding = Finding::warning("memory", observed)
        .because("when it is full, no lock is granted; renewals and releases still work")
        .fix("raise maxmemory, or give the locks a server of their own");
    Some(finding)
}
