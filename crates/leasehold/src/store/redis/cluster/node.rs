//! One node of a cluster, and its address.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::address::Address;
use super::super::connection_manager::ConnectionManager;
use super::super::notifications::Notifications;
use super::super::observers::ServerObservers;
use super::super::script::{self, MUTEX, RENEW, Script};
use crate::Result;
use crate::store::api::Shard;
use crate::store::options::OpenOptions;

/// A node, with a connection and scripts of its own.
#[derive(Debug)]
pub(super) struct ClusterNode {
    pub(super) addr: NodeAddr,
    pub(super) shard: Shard,
    pub(super) manager: ConnectionManager,
    pub(super) mutex: Script,
    pub(super) renew: Script,
    /// Whether the last call failed.
    doubtful: AtomicBool,
}

impl ClusterNode {
    pub(super) fn new(
        seed: &Address,
        addr: NodeAddr,
        id: &str,
        shard: Shard,
        options: &OpenOptions,
        observers: &Arc<ServerObservers>,
    ) -> Self {
        let notifications = Arc::new(Notifications::of_node(id.to_owned(), observers));
        let address = seed.at(&addr.host, addr.port);
        Self {
            manager: ConnectionManager::new(address, options).with_notifications(notifications),
            addr,
            shard,
            mutex: Script::new(MUTEX),
            renew: Script::new(RENEW),
            doubtful: AtomicBool::new(false),
        }
    }

    /// Its id in the cluster.
    pub(super) fn id(&self) -> &str {
        self.manager.notifications().node()
    }

    pub(super) fn is_doubtful(&self) -> bool {
        self.doubtful.load(Ordering::Relaxed)
    }

    /// Records whether the last call failed.
    pub(super) fn set_doubtful(&self, doubtful: bool) {
        self.doubtful.store(doubtful, Ordering::Relaxed);
    }

    /// Proves that it responds, accepts us and can run the rule.
    pub(super) async fn greet(&self) -> Result<()> {
        let greeted = script::greet(&self.manager, &self.mutex).await;
        self.set_doubtful(greeted.is_err());
        greeted
    }
}

/// The address of a node, as the cluster announces it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct NodeAddr {
    pub(super) host: String,
    pub(super) port: u16,
}

impl NodeAddr {
    /// Parses `host:port`. A missing host is that of the node that was sender.
    pub(super) fn parse(text: &str, sender: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Self::new(host, port.parse().ok()?, sender)
    }

    /// A host that is empty or `?` is that of the node that was sender: nodes send `?` if they are to announce a
    /// name and have none.
    pub(super) fn new(host: &str, port: u16, sender: &Self) -> Option<Self> {
        let host = match host {
            "" | "?" => &sender.host,
            host => host,
        };
        (port != 0).then(|| Self {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for NodeAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}
