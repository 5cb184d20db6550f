//! The report of a node on its cluster.

use super::{send, words};
use crate::Result;
use crate::store::diagnose::{ClusterFacts, ClusterMember, Fields, QueryResult};
use crate::store::options::OpenOptions;
use crate::store::redis::address::Address;
use crate::store::redis::address::deployment::Deployment;
use crate::store::redis::errors;
use crate::store::redis::link::connection_manager::ConnectionManager;
use crate::store::redis::wire::reply::text;

/// Asks one node after the other until one replies. Also returns all nodes; if they are not reported, those
/// that the URL names.
///
/// # Errors
///
/// That of the last connection attempt, if none replies.
pub(super) async fn collect(
    seeds: Vec<Address>,
    options: &OpenOptions,
) -> Result<(QueryResult<ClusterFacts>, Vec<Address>)> {
    let mut failure = errors::invalid_reply();
    for seed in &seeds {
        let manager = ConnectionManager::new(seed.clone(), options);
        match one(&manager).await {
            Ok(Ok(facts)) if !facts.members.is_empty() => {
                let members = facts.members.iter().filter(|member| member.port != 0);
                let nodes = members.map(|member| match member.host.as_str() {
                    // A single node may not know its own address.
                    "" => seed.clone(),
                    host => seed.at(host, member.port),
                });
                let nodes = nodes.collect();
                return Ok((Ok(facts), nodes));
            }
            Ok(facts) => return Ok((facts, seeds)),
            Err(error) => failure = error,
        }
    }
    Err(failure.at_store(Deployment::Cluster(seeds)))
}

async fn one(manager: &ConnectionManager) -> Result<QueryResult<ClusterFacts>> {
    let ask = |what: &str| words(&["CLUSTER", what]);
    let replies = send(manager, [ask("INFO"), ask("NODES")]).await?;
    if let Some(refusal) = replies.iter().find_map(errors::refusal) {
        return Ok(Err(refusal.words));
    }
    let [info, nodes] = [0, 1].map(|at| replies.get(at).and_then(text).unwrap_or_default());
    Ok(Ok(ClusterFacts {
        info: Fields::of_lines(&info),
        members: nodes.lines().filter_map(member).collect(),
    }))
}

/// `ID HOST:PORT@BUS[,NAME] FLAGS MASTER PING PONG EPOCH LINK SLOTS...`
fn member(line: &str) -> Option<ClusterMember> {
    let words: Vec<_> = line.split_ascii_whitespace().collect();
    let [id, target, flags, master, _, _, _, _, slots @ ..] = &words[..] else {
        return None;
    };
    let target = target.split([',', '@']).next()?;
    let (host, port) = target.rsplit_once(':')?;
    Some(ClusterMember {
        id: (*id).to_owned(),
        host: host.to_owned(),
        port: port.parse().ok()?,
        flags: flags.split(',').map(str::to_owned).collect(),
        follows: (*master != "-").then(|| (*master).to_owned()),
        // Slots in brackets are being migrated.
        has_slots: slots.iter().any(|slot| !slot.starts_with('[')),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_node() {
        let line = "07c3 127.0.0.1:30004@31004,host4 slave,fail? e7d1 0 14262388 4 connected";
        let node = member(line).unwrap();
        assert_eq!(node.name(), "127.0.0.1:30004");
        assert!(node.is("slave") && node.is("fail?") && !node.is("fail") && !node.has_slots);
        assert_eq!(node.follows.as_deref(), Some("e7d1"));
        let line = "e7d1 ::1:30001@31001 myself,master - 0 0 1 connected 0-5460 [93->-292f]";
        let node = member(line).unwrap();
        assert_eq!((node.name(), node.follows), ("::1:30001".into(), None));
        assert!(node.has_slots);
        assert_eq!(member("vars currentEpoch 6 lastVoteEpoch 0"), None);
    }
}
