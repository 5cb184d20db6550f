//! Checks of the replicas of a master.

use super::Finding;
use crate::doctor::finding::count;
use crate::store::diagnose::{Fields, NodeFacts, Topology};

const CHECK: &str = "replicas";

/// The number of seconds from which a replica lags.
const LAG: u64 = 2;

pub(super) fn check(node: &NodeFacts, topology: &Topology) -> Vec<Finding> {
    let Ok(info) = &node.info else {
        return Vec::new();
    };
    let config = node.config.as_ref().ok();
    let wanted = config.and_then(|config| config.number("min-replicas-to-write"));
    let is_one_of_many = matches!(topology, Topology::Masters);
    let good = info.number("min_slaves_good_slaves");
    let lines = (0..).map_while(|at| info.get(&format!("slave{at}")));
    let replicas: Vec<_> = lines.map(fields).collect();
    if let (Some(wanted), Some(good)) = (wanted, good)
        && good < wanted
    {
        let observed = format!("min-replicas-to-write is {wanted}, and {good} replicas are good");
        let finding = match is_one_of_many {
            true => Finding::warning(CHECK, observed).because(
                "the server refuses every change: the other masters must agree without it",
            ),
            false => Finding::danger(CHECK, observed).because(
                "the server refuses every change: no lock can be acquired, renewed or released",
            ),
        };
        let fix = "bring the replicas back, or lower min-replicas-to-write";
        return vec![finding.fix(fix)];
    }
    if replicas.is_empty() {
        return vec![Finding::ok(CHECK, "none, so none can be promoted")];
    }
    let number = replicas.len() as u64;
    if is_one_of_many {
        return vec![of_one_of_many(number)];
    }
    let mut findings: Vec<_> = replicas.iter().filter_map(check_lag).collect();
    findings.push(promotion_risk(number, wanted));
    findings
}

/// Admission keeps a promoted replica out until every lease that it may lack has ended.
fn of_one_of_many(number: u64) -> Finding {
    Finding::note(CHECK, count(number, "replica"))
        .because(
            "many masters need no replicas; when the first one connects, or one is promoted, this \
             master grants nothing for the longest ttl",
        )
        .fix("connect the first replica, or make the first backup, of one master at a time")
}

fn promotion_risk(number: u64, wanted: Option<u64>) -> Finding {
    let shown = wanted.map_or("unknown".to_owned(), |wanted| wanted.to_string());
    let observed = format!(
        "{}, min-replicas-to-write {shown}",
        count(number, "replica")
    );
    let fix = match wanted.unwrap_or(0) {
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
    Finding::warning(CHECK, observed)
        .because(
            "replication is asynchronous: a promoted replica may lack locks that are held, and a \
             master that is cut off continues to grant until it is demoted",
        )
        .fix(fix)
}

fn check_lag(replica: &Fields) -> Option<Finding> {
    let get = |name| replica.get(name).unwrap_or("?");
    let address = format!("{}:{}", get("ip"), get("port"));
    let observed = match replica.number("lag") {
        _ if !replica.is("state", "online") => {
            format!("the replica {address} is not synchronized yet")
        }
        Some(lag) if lag >= LAG => format!("the replica {address} was last heard of {lag} s ago"),
        _ => return None,
    };
    let finding = Finding::warning(CHECK, observed)
        .because("if it is promoted, it lacks the changes that it has not received")
        .fix("check its log and its network");
    Some(finding)
}

/// The fields of `ip=127.0.0.1,port=6380,state=online,offset=42,lag=0`.
fn fields(line: &str) -> Fields {
    let pairs = line.split(',');
    pairs.filter_map(|pair| pair.split_once('=')).collect()
}
