//! Where calls go: to one server, to the master that sentinels name, or to the nodes of a cluster.
//!
//! * `call` is a call, `node` a server that takes it, `waits` the acknowledgements that it waits for.
//! * `cluster` keeps the nodes, `slot_map` is the owner of each slot. `router` routes calls to the nodes. The routing is
//!   not that of the client library, which repeats requests that may have been applied.

pub(crate) mod call;
pub(crate) mod cluster;
pub(crate) mod node;
mod router;
pub(crate) mod slot_map;
pub(crate) mod waits;

use std::sync::{Arc, Weak};

use leasehold_core::ClientId;

use self::call::{Call, CallResults};
use self::cluster::Cluster;
use self::node::Node;
use super::link::clients::Clients;
use super::wire::slots;
use crate::store::api::{Key, Keyspace, Listener, Listening, Shard, StoreKind, WakeupMode};

/// The servers of a store.
#[derive(Debug)]
pub(crate) enum Topology {
    /// One server, or the master that sentinels name: then its address moves.
    One(Arc<Node>),
    /// The nodes of a cluster.
    Cluster(Arc<Cluster>),
}

impl Topology {
    /// Makes calls, as many at once as there are servers. Nothing is sent twice that may have been applied.
    pub(crate) async fn call(&self, calls: Vec<Call>) -> CallResults {
        match self {
            Self::One(node) => node.call(calls, None).await,
            Self::Cluster(cluster) => router::route(cluster, calls).await,
        }
    }

    /// The slot of a name, if names with different slots need different calls.
    pub(crate) fn slot(&self) -> fn(&Key) -> u16 {
        match self {
            Self::One(_) => |_| 0,
            Self::Cluster(_) => slots::of,
        }
    }

    pub(crate) fn shard(&self, key: &Key) -> Shard {
        match self {
            Self::One(_) => Shard(0),
            Self::Cluster(cluster) => cluster.map().shard(key).unwrap_or(Shard(0)),
        }
    }

    pub(crate) fn kind(&self) -> StoreKind {
        match self {
            Self::One(_) => StoreKind::Redis,
            Self::Cluster(_) => StoreKind::Cluster,
        }
    }

    /// How refused clients are woken.
    pub(crate) fn wakeup_mode(&self) -> WakeupMode {
        match self {
            Self::One(node) => node.manager.notifications().wakeup_mode(),
            Self::Cluster(cluster) => cluster.wakeup_mode(),
        }
    }

    /// The clients, and the observers of names at all servers.
    pub(crate) fn clients(&self) -> &Arc<Clients> {
        match self {
            Self::One(node) => &node.manager.notifications().clients,
            Self::Cluster(cluster) => &cluster.clients,
        }
    }

    /// The servers that have records.
    pub(crate) fn servers(&self) -> Vec<Arc<Node>> {
        match self {
            Self::One(node) => vec![Arc::clone(node)],
            Self::Cluster(cluster) => {
                let map = cluster.map();
                let nodes = map.nodes.iter();
                nodes.map(|node| Arc::clone(&node.server)).collect()
            }
        }
    }

    /// Subscribes a client to its events.
    pub(crate) fn listen(
        self: &Arc<Self>,
        space: &Keyspace,
        client: ClientId,
        to: Weak<dyn Listener>,
    ) -> Listening {
        self.clients().add(space, client, to);
        let topology = Arc::downgrade(self);
        Listening::new(move || {
            if let Some(topology) = topology.upgrade() {
                topology.clients().remove(client);
                for server in topology.servers() {
                    server.manager.unsubscribe(client);
                }
            }
        })
    }
}
