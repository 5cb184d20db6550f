//! Which node has which slot.

use std::sync::Arc;

use redis::{ServerError, Value};

use super::super::codec::text;
use super::node::ClusterNode;
use super::node_addr::NodeAddr;
use super::slots::SLOTS;

/// What a node says of the cluster.
#[derive(Debug, Default)]
pub(super) struct SlotsReply {
    pub(super) masters: Vec<Master>,
    pub(super) replicas: Vec<NodeAddr>,
}

/// A master and some of its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Master {
    pub(super) addr: NodeAddr,
    pub(super) id: String,
    pub(super) first: u16,
    pub(super) last: u16,
}

/// The owner of each slot.
#[derive(Clone, Debug)]
pub(super) struct SlotMap {
    /// For each slot the addr of its owner in `nodes`. Beyond them: it has none.
    owners: Vec<u16>,
    nodes: Vec<Arc<ClusterNode>>,
    replicas: Vec<NodeAddr>,
}

/// An answer that sends whoever asks to another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// The slot belongs to another node.
    Moved(NodeAddr),
    /// It is on its way to another node, and what was asked for is there if anywhere.
    Ask(NodeAddr),
    /// It is on its way to another node, and what was asked for is in both.
    Both,
    /// Nobody serves the slot at this moment.
    Down,
}

const NOBODY: u16 = u16::MAX;

impl SlotMap {
    /// A map on which nobody has a slot.
    pub(super) fn empty() -> Self {
        Self {
            owners: vec![NOBODY; usize::from(SLOTS)],
            nodes: Vec::new(),
            replicas: Vec::new(),
        }
    }

    /// A map by what a node said, with the nodes in the order of its masters.
    pub(super) fn new(told: &SlotsReply, nodes: &[Arc<ClusterNode>]) -> Self {
        let mut map = Self::empty();
        for (master, node) in told.masters.iter().zip(nodes) {
            for slot in master.first..=master.last {
                map.set(slot, node);
            }
        }
        map.replicas.clone_from(&told.replicas);
        map
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<ClusterNode>> {
        let owner = self.owners.get(usize::from(slot))?;
        self.nodes.get(usize::from(*owner))
    }

    /// Makes a node the owner of a slot.
    pub(super) fn set(&mut self, slot: u16, node: &Arc<ClusterNode>) {
        let known = self.nodes.iter().position(|known| Arc::ptr_eq(known, node));
        let nth = known.unwrap_or_else(|| {
            self.nodes.push(Arc::clone(node));
            self.nodes.len() - 1
        });
        if let Some(owner) = self.owners.get_mut(usize::from(slot)) {
            *owner = u16::try_from(nth).unwrap_or(NOBODY);
        }
    }

    /// The nodes that have slots.
    pub(super) fn nodes(&self) -> &[Arc<ClusterNode>] {
        &self.nodes
    }

    pub(super) fn replicas(&self) -> &[NodeAddr] {
        &self.replicas
    }

    /// How many slots have no owner.
    pub(super) fn uncovered(&self) -> usize {
        self.owners.iter().filter(|owner| **owner == NOBODY).count()
    }
}

impl SlotsReply {
    /// The answer to `CLUSTER SLOTS` of the node at a addr. `None`: it makes no sense.
    pub(super) fn parse(answer: &Value, asked: &NodeAddr) -> Option<Self> {
        let Value::Array(ranges) = answer else {
            return None;
        };
        let mut told = Self::default();
        for range in ranges {
            let Value::Array(range) = range else {
                return None;
            };
            let [first, last, master, replicas @ ..] = range.as_slice() else {
                return None;
            };
            let (first, last) = (slot(first)?, slot(last)?);
            let (addr, id) = node(master, asked)?;
            told.masters.push(Master {
                addr,
                id,
                first,
                last,
            });
            for replica in replicas {
                let (addr, _) = node(replica, asked)?;
                if !told.replicas.contains(&addr) {
                    told.replicas.push(addr);
                }
            }
        }
        Some(told)
    }
}

impl Redirect {
    /// What an error of the node at a addr says of where to ask instead, if it does.
    pub(super) fn parse(error: &ServerError, asked: &NodeAddr) -> Option<Self> {
        let to = || {
            let (_, addr) = error.details()?.trim().split_once(' ')?;
            NodeAddr::parse(addr, asked)
        };
        match error.code() {
            "MOVED" => to().map(Self::Moved),
            "ASK" => to().map(Self::Ask),
            "TRYAGAIN" => Some(Self::Both),
            "CLUSTERDOWN" => Some(Self::Down),
            _ => None,
        }
    }
}

fn slot(value: &Value) -> Option<u16> {
    let Value::Int(slot) = value else { return None };
    u16::try_from(*slot).ok().filter(|slot| *slot < SLOTS)
}

/// NodeAddr and id of a node.
fn node(value: &Value, asked: &NodeAddr) -> Option<(NodeAddr, String)> {
    let Value::Array(node) = value else {
        return None;
    };
    let [host, Value::Int(port), id, ..] = node.as_slice() else {
        return None;
    };
    let host = match host {
        Value::Nil => String::new(),
        host => text(host)?,
    };
    let addr = NodeAddr::new(&host, u16::try_from(*port).ok()?, asked)?;
    Some((addr, text(id)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn addr(host: &str, port: u16) -> NodeAddr {
        NodeAddr {
            host: host.to_owned(),
            port,
        }
    }

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn told_node(host: Value, port: i64, id: &str) -> Value {
        Value::Array(vec![host, Value::Int(port), bulk(id), Value::Array(vec![])])
    }

    #[test]
    fn an_answer_tells_masters_and_replicas() {
        let answer = Value::Array(vec![
            Value::Array(vec![
                Value::Int(0),
                Value::Int(8_191),
                told_node(bulk("10.0.0.1"), 7_000, "a"),
                told_node(bulk(""), 7_003, "d"),
            ]),
            Value::Array(vec![
                Value::Int(8_192),
                Value::Int(16_383),
                told_node(Value::Nil, 7_001, "b"),
                told_node(bulk("?"), 7_003, "d"),
            ]),
        ]);
        let told = SlotsReply::parse(&answer, &addr("seed", 7_009)).unwrap();
        let masters: Vec<_> = told.masters.iter().map(|master| &master.addr).collect();
        assert_eq!(masters, [&addr("10.0.0.1", 7_000), &addr("seed", 7_001)]);
        assert_eq!(told.replicas, [addr("seed", 7_003)]);
        assert_eq!(
            (told.masters[1].first, told.masters[1].last),
            (8_192, 16_383)
        );
    }

    #[test]
    fn redirections_name_a_place() {
        let parse = |text: &str| {
            let reply = redis::parse_redis_value(format!("-{text}\r\n").as_bytes());
            let Ok(Value::ServerError(error)) = reply else {
                unreachable!("{reply:?}")
            };
            Redirect::parse(&error, &addr("asked", 1))
        };
        let moved = |host, port| Some(Redirect::Moved(addr(host, port)));
        assert_eq!(
            parse("MOVED 3999 127.0.0.1:6381"),
            moved("127.0.0.1", 6_381)
        );
        assert_eq!(parse("MOVED 3999 ::1:6381"), moved("::1", 6_381));
        assert_eq!(parse("MOVED 3999 :6381"), moved("asked", 6_381));
        assert_eq!(parse("ASK 1 h:2"), Some(Redirect::Ask(addr("h", 2))));
        assert_eq!(parse("TRYAGAIN Multiple keys"), Some(Redirect::Both));
        assert_eq!(
            parse("CLUSTERDOWN Hash slot not served"),
            Some(Redirect::Down)
        );
        for strange in [
            "MOVED",
            "MOVED 1",
            "MOVED 1 h",
            "MOVED 1 h:0",
            "MOVED 1 h:x",
            "ERR ASK",
        ] {
            assert_eq!(parse(strange), None, "{strange}");
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Value::Int),
            (0..20_000_i64).prop_map(Value::Int),
            any::<String>().prop_map(|text| bulk(&text)),
            Just(Value::Nil),
        ];
        leaf.prop_recursive(3, 24, 5, |inner| {
            prop::collection::vec(inner, 0..5).prop_map(Value::Array)
        })
    }

    proptest! {
        #[test]
        fn no_answer_breaks_it(answer in any_value()) {
            if let Some(told) = SlotsReply::parse(&answer, &addr("a", 1)) {
                for master in told.masters {
                    prop_assert!(master.last < SLOTS && master.addr.port != 0);
                }
            }
        }
    }
}
