//! Checks of the replicas of a master.

use super::Finding;
use crate::store::diagnose::{Fields, NodeFacts};

const CHECK: &str = "replicas";

/// The number of seconds from which a replica lags.
const LAG: u64 = 2;

pub(super) fn check(node: &NodeFacts) -> Vec<Finding> {
    let Ok(info) = &node.info else {
        return Vec::new();
    };
    let config = node.config.as_ref().ok();
    let wanted = config.and_then(|config| config.number("min-replicas-to-write"));
    let wanted = wanted.unwrap_or(0);
    let good = info.number("min_slaves_good_slaves");
    let lines = (0..).map_while(|at| info.get(&format!("slave{at}")));
    let replicas: Vec<_> = lines.map(fields).collect();
    if wanted > 0 && good.is_some_and(|good| good < wanted) {
        let good = good.unwrap_or(0);
        let seen = format!("min-replicas-to-write is {wanted}, and {good} replicas are good");
        let finding = Finding::danger(CHECK, seen)
            .because(
                "the server refuses every change: no lock can be acquired, renewed or released",
            )
            .fix("bring the replicas back, or lower min-replicas-to-write");
        return vec![finding];
    }
    if replicas.is_empty() {
        return vec![Finding::ok(CHECK, "none, so none can be promoted")];
    }
    let mut findings: Vec<_> = replicas.iter().filter_map(check_lag).collect();
    let count = replicas.len();
    findings.push(promotion_risk(count, wanted));
    findings
}

fn promotion_risk(count: usize, wanted: u64) -> Finding {
    let seen = format!("{count} replicas, min-replicas-to-write {wanted}");
    let fix = match wanted {
        0 => {
            "acquire locks only if replicas acknowledge them (durability, which needs the right \
             +wait), and limit the grants of a master that is cut off: CONFIG SET min-replicas-to-write 1, \
             CONFIG SET min-replicas-max-lag 2; check fencing tokens"
        }
        _ => {
            "acquire locks only if replicas acknowledge them (durability, which needs the right \
             +wait); check fencing tokens"
        }
    };
    Finding::warning(CHECK, seen)
        .because(
            "replication is asynchronous: a promoted replica may lack locks that are held, and a \
             master that is cut off continues to grant until it is demoted",
        )
        .fix(fix)
}

fn check_lag(replica: &Fields) -> Option<Finding> {
    let get = |name| replica.get(name).unwrap_or("?");
    let address = format!("{}:{}", get("ip"), get("port"));
    let seen = match replica.number("lag") {
        _ if !replica.is("state", "online") => {
            format!("the replica {address} is not synchronized yet")
        }
        Some(lag) if lag >= LAG => format!("the replica {address} was last heard of {lag} s ago"),
        _ => return None,
    };
    let finding = Finding::warning(CHECK, seen)
        .because("if it is promoted, it lacks the changes that it has not received")
        .fix("check its log and its network");
    Some(finding)
}

/// The fields of `ip=127.0.0.1,port=6380,state=online,offset=42,lag=0`.
fn fields(line: &str) -> Fields {
    let pairs = line.split(',').filter_map(|pair| pair.split_once('='));
    Fields(
        pairs
            .map(|(field, value)| (field.to_owned(), value.to_owned()))
            .collect(),
    )
}
