//! Failures of a cluster.

use redis::ServerError;

use super::known::CLUSTER;
use super::{call, quote};
use crate::{Error, ErrorKind};

/// The URL of a single server names a node of a cluster.
pub(crate) fn cluster_without_its_name() -> Error {
    Error::new(ErrorKind::InvalidConfig, CLUSTER)
}

/// The error of a command about the cluster.
pub(crate) fn of_cluster(error: &ServerError) -> Error {
    let words = error.details().unwrap_or_default();
    if words.contains("cluster support disabled") {
        let message = "this server is in no cluster; use redis:// with its host";
        return Error::new(ErrorKind::InvalidConfig, message);
    }
    call(error).0
}

/// Not all slots of a cluster are served.
pub(crate) fn slots_without_node(slots: usize) -> Error {
    let message = format!(
        "{slots} slots of the cluster are served by no node; look at CLUSTER INFO, and finish it \
         with redis-cli --cluster fix"
    );
    Error::new(ErrorKind::Store, message)
}

/// No known node serves the slot of a lock.
pub(crate) fn no_node_for_slot() -> Error {
    let message = "no node of the cluster serves the slot of this lock; check CLUSTER INFO";
    Error::new(ErrorKind::Unreachable, message)
}

/// The cluster does not serve this slot.
pub(crate) fn cluster_down(words: &str) -> Error {
    let message = format!(
        "the cluster does not serve this lock at this moment; check CLUSTER INFO ({})",
        quote(words)
    );
    Error::new(ErrorKind::Unreachable, message)
}

/// The slot of a lock is being migrated, and its keys are on two nodes.
pub(crate) fn slot_is_moving() -> Error {
    let message = "the slot of this lock is being migrated to another node; it works again when its keys \
                   have moved, if nobody moves them use redis-cli --cluster fix";
    Error::new(ErrorKind::Unreachable, message)
}

/// The nodes redirect to each other.
pub(crate) fn nodes_disagree() -> Error {
    let message = "the nodes of the cluster do not agree on the owner of the slot of this lock";
    Error::new(ErrorKind::Unreachable, message)
}
