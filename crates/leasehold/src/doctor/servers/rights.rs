//! Checks of the permissions of our user, and of the notification of losses.

use super::Finding;
use crate::store::diagnose::{MissingRight, NodeFacts, Purpose, Topology};

pub(super) fn check(node: &NodeFacts, topology: &Topology, acl: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    // A replica refuses writes in any case.
    let blocked = node.rights.blocked.as_ref().filter(|_| !node.is_replica());
    if let Some(message) = blocked {
        let observed = format!("the server refuses to write: {message}");
        let finding = match topology {
            Topology::Masters => Finding::warning("writes", observed)
                .because("it grants no lock: the other masters must agree without it"),
            _ => Finding::danger("writes", observed).because("no lock can be acquired"),
        };
        findings.push(finding.fix("remove the reason that the server names"));
    }
    let user = node.rights.user.as_deref().unwrap_or("default");
    for missing in node.rights.missing.chunk_by(|a, b| a.purpose == b.purpose) {
        findings.push(lacking(user, missing, topology, acl));
    }
    if !node.rights.tried {
        findings.extend(untried(node));
    } else if node.rights.missing.is_empty() {
        findings.push(Finding::ok(
            "rights",
            format!("user {user} has all rights that locks need"),
        ));
    }
    findings.push(match node.protocol {
        3 => Finding::ok("protocol", "RESP3: losses are notified immediately"),
        _ => Finding::note("protocol", "RESP2 only")
            .because(
                "a holder learns at its next renewal that its lock was deleted or evicted, and each \
                 client needs a second connection",
            )
            .fix("upgrade to Redis 6.0.6 or later, and do not rename HELLO"),
    });
    findings
}

/// The finding that the rights on keys could not be tried, because the names that were tried are not in slots of
/// the node. A replica in a cluster has no slots; without `INFO` the role is not known, which `missing_facts` reports.
fn untried(node: &NodeFacts) -> Option<Finding> {
    let finding = Finding::note("rights", "no name that was tried is in a slot of the node")
        .because("a missing permission there would show with the first lock in its slots")
        .fix("none is needed if all nodes have the same users");
    (node.info.is_ok() && !node.is_replica()).then_some(finding)
}

/// Rules without which a user cannot be notified, and is not granted any lock where there is a queue.
const NOTIFICATIONS: [&str; 4] = ["&", "+subscribe", "+publish", "+lpos"];

/// The finding for missing permissions with the same purpose.
fn lacking(user: &str, missing: &[MissingRight], topology: &Topology, acl: &str) -> Finding {
    let rules: Vec<_> = missing.iter().map(|lack| whole(&lack.rule, acl)).collect();
    let rules = rules.join(" ");
    let purpose = missing.first().map_or(Purpose::Lock, |lack| lack.purpose);
    let observed = format!("user {user} lacks {rules}");
    let has_queue = !matches!(topology, Topology::Masters);
    let notifies = |lack: &MissingRight| NOTIFICATIONS.contains(&lack.rule.as_str());
    let is_denied = has_queue && missing.iter().any(notifies);
    let finding = match purpose {
        Purpose::Lock => Finding::danger("rights", observed).because("it is not granted any lock"),
        Purpose::Wait if is_denied => Finding::danger("rights", observed).because(
            "it is not granted any lock: it would wait behind all others, and its releases would notify no waiter",
        ),
        Purpose::Wait => Finding::warning("rights", observed)
            .because("it cannot wait in the queue, and its releases do not grant the lock to waiters"),
        Purpose::Renew => {
            Finding::note("rights", observed).because("its renewals cost the server more than necessary")
        }
        Purpose::Losses => Finding::note("rights", observed)
            .because("it learns at its next renewal that its lock was deleted or evicted"),
        Purpose::Hash => Finding::note("rights", observed)
            .because("its latches, semaphores and read-write locks do not work"),
        Purpose::Inspect => Finding::note("rights", observed)
            .because("leasehold ls and show do not work, or do not describe its locks"),
    };
    finding.fix(format!("ACL SETUSER {user} {rules}"))
}

/// The rule, and for keys and channels with the pattern of `acl`.
fn whole<'a>(rule: &'a str, acl: &'a str) -> &'a str {
    let pattern = |mark: char| acl.split(' ').find(|word| word.starts_with(mark));
    match rule {
        "~" => pattern('~').unwrap_or(rule),
        "&" => pattern('&').unwrap_or(rule),
        _ => rule,
    }
}
