//! The owner of each slot.

use std::sync::{Arc, Mutex};

use redis::Value;

use super::node::ClusterNode;
use crate::store::api::{Key, Shard};
use crate::store::lock::lock;
use crate::store::redis::address::HostPort;
use crate::store::redis::link::notifications::Owners;
use crate::store::redis::wire::reply::text;
use crate::store::redis::wire::slots::{self, SLOTS};

/// The reply of a node to `CLUSTER SLOTS`.
#[derive(Debug, Default)]
pub(crate) struct SlotsReply {
    pub(crate) masters: Vec<Master>,
    pub(crate) replicas: Vec<HostPort>,
}

/// A master and a range of its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Master {
    pub(crate) addr: HostPort,
    pub(crate) id: String,
    pub(crate) first: u16,
    pub(crate) last: u16,
}

/// The owner of each slot.
#[derive(Clone, Debug)]
pub(crate) struct SlotMap {
    /// The position in `nodes` of the owner of each slot. `None`: it has no owner.
    owners: Vec<Option<u16>>,
    /// The nodes that have slots.
    pub(super) nodes: Vec<Arc<ClusterNode>>,
    pub(super) replicas: Vec<HostPort>,
}

/// Why a node has not served a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// The slot belongs to another node.
    Moved(HostPort),
    /// The slot is being migrated, and the keys of the call are on the other node if anywhere.
    Ask(HostPort),
    /// The slot is being migrated, and the keys of the call are on both nodes.
    Both,
    /// No node serves the slot at this moment, in the words of the node.
    Down(String),
    /// The slot map names another owner by now, or none: the call was not sent.
    Elsewhere,
}

impl Default for SlotMap {
    /// A map without owners.
    fn default() -> Self {
        Self {
            owners: vec![None; usize::from(SLOTS)],
            nodes: Vec::new(),
            replicas: Vec::new(),
        }
    }
}

/// The current slot map.
impl Owners for Mutex<Arc<SlotMap>> {
    fn shard(&self, key: &Key) -> Option<Shard> {
        lock(self).shard(key)
    }
}

impl SlotMap {
    /// The map of a reply, with the nodes in the order of its masters.
    pub(crate) fn new(reply: &SlotsReply, nodes: &[Arc<ClusterNode>]) -> Self {
        let mut map = Self::default();
        for (master, node) in reply.masters.iter().zip(nodes) {
            for slot in master.first..=master.last {
                map.set(slot, node);
            }
        }
        map.replicas.clone_from(&reply.replicas);
        map
    }

    pub(crate) fn owner(&self, slot: u16) -> Option<&Arc<ClusterNode>> {
        let owner = *self.owners.get(usize::from(slot))?;
        self.nodes.get(usize::from(owner?))
    }

    /// The shard that has a name.
    pub(crate) fn shard(&self, key: &Key) -> Option<Shard> {
        self.owner(slots::of(key)).map(|node| node.shard)
    }

    /// Makes a node the owner of a slot.
    pub(crate) fn set(&mut self, slot: u16, node: &Arc<ClusterNode>) {
        let known = self.nodes.iter().position(|known| Arc::ptr_eq(known, node));
        let nth = known.unwrap_or_else(|| {
            self.nodes.push(Arc::clone(node));
            self.nodes.len() - 1
        });
        if let Some(owner) = self.owners.get_mut(usize::from(slot)) {
            *owner = u16::try_from(nth).ok();
        }
    }

    /// The number of slots without an owner.
    pub(crate) fn uncovered(&self) -> usize {
        self.owners.iter().filter(|owner| owner.is_none()).count()
    }
}

impl SlotsReply {
    /// Parses the reply of the node at an address. `None` if it is invalid.
    pub(crate) fn parse(value: &Value, sender: &HostPort) -> Option<Self> {
        let mut reply = Self::default();
        for range in value.as_sequence()? {
            let [first, last, master, replicas @ ..] = range.as_sequence()? else {
                return None;
            };
            let (first, last) = (slot(first)?, slot(last)?);
            let (addr, id) = node(master, sender)?;
            reply.masters.push(Master {
                addr,
                id,
                first,
                last,
            });
            for replica in replicas {
                let (addr, _) = node(replica, sender)?;
                if !reply.replicas.contains(&addr) {
                    reply.replicas.push(addr);
                }
            }
        }
        Some(reply)
    }
}

impl Redirect {
    /// The redirection in a reply of the node at an address, if it is one.
    pub(crate) fn parse(reply: &Value, sender: &HostPort) -> Option<Self> {
        let Value::ServerError(error) = reply else {
            return None;
        };
        let words = error.details().unwrap_or_default();
        let to = || {
            let (_, addr) = words.trim().split_once(' ')?;
            let (host, port) = addr.rsplit_once(':')?;
            let host = host.trim_start_matches('[').trim_end_matches(']');
            announced(host, port.parse().ok()?, sender)
        };
        match error.code() {
            "MOVED" => to().map(Self::Moved),
            "ASK" => to().map(Self::Ask),
            "TRYAGAIN" => Some(Self::Both),
            "CLUSTERDOWN" => Some(Self::Down(words.to_owned())),
            _ => None,
        }
    }
}

/// The address of a node, as another announces it. A host that is empty or `?` is that of the sender: nodes send `?` if
/// they are to announce a name and have none.
fn announced(host: &str, port: u16, sender: &HostPort) -> Option<HostPort> {
    let host = match host {
        "" | "?" => &sender.host,
        host => host,
    };
    (port != 0).then(|| HostPort {
        host: host.to_owned(),
        port,
    })
}

fn slot(value: &Value) -> Option<u16> {
    let Value::Int(slot) = value else { return None };
    u16::try_from(*slot).ok().filter(|slot| *slot < SLOTS)
}

/// The address and the id of a node.
fn node(value: &Value, sender: &HostPort) -> Option<(HostPort, String)> {
    let [host, Value::Int(port), id, ..] = value.as_sequence()? else {
        return None;
    };
    let host = match host {
        Value::Nil => String::new(),
        host => text(host)?,
    };
    let addr = announced(&host, u16::try_from(*port).ok()?, sender)?;
    Some((addr, text(id)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(host: &str, port: u16) -> HostPort {
        HostPort {
            host: host.to_owned(),
            port,
        }
    }

    #[test]
    fn a_reply_names_masters_and_replicas() {
        let [low, high] = [
            "*4\r\n:0\r\n:8191\r\n*3\r\n+10.0.0.1\r\n:7000\r\n+a\r\n*3\r\n+\r\n:7003\r\n+d\r\n",
            "*4\r\n:8192\r\n:16383\r\n*3\r\n_\r\n:7001\r\n+b\r\n*3\r\n+?\r\n:7003\r\n+d\r\n",
        ];
        let value = redis::parse_redis_value(format!("*2\r\n{low}{high}").as_bytes());
        let reply = SlotsReply::parse(&value.unwrap(), &addr("seed", 7_009)).unwrap();
        let master = |addr, id: &str, first, last| Master {
            addr,
            id: id.to_owned(),
            first,
            last,
        };
        let low = master(addr("10.0.0.1", 7_000), "a", 0, 8_191);
        let high = master(addr("seed", 7_001), "b", 8_192, 16_383);
        assert_eq!(reply.masters, [low, high]);
        assert_eq!(reply.replicas, [addr("seed", 7_003)]);
    }

    #[test]
    fn a_redirection_names_an_address() {
        let moved = |host, port| Some(Redirect::Moved(addr(host, port)));
        let down = Some(Redirect::Down("not served".to_owned()));
        for (text, redirect) in [
            ("MOVED 3999 127.0.0.1:6381", moved("127.0.0.1", 6_381)),
            ("MOVED 3999 ::1:6381", moved("::1", 6_381)),
            ("MOVED 3999 :6381", moved("sender", 6_381)),
            ("ASK 1 h:2", Some(Redirect::Ask(addr("h", 2)))),
            ("TRYAGAIN Multiple keys", Some(Redirect::Both)),
            ("CLUSTERDOWN not served", down),
            ("MOVED", None),
            ("MOVED 1", None),
            ("MOVED 1 h", None),
            ("MOVED 1 h:0", None),
            ("MOVED 1 h:x", None),
            ("ERR ASK", None),
        ] {
            let reply = redis::parse_redis_value(format!("-{text}\r\n").as_bytes());
            let parsed = Redirect::parse(&reply.unwrap(), &addr("sender", 1));
            assert_eq!(parsed, redirect, "{text}");
        }
    }
}
