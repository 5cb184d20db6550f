//! What keeps a cluster from serving a lock.

use redis::{ServerError, Value};

use super::known::CLUSTER;
use super::{call, quote};
use crate::{Error, ErrorKind};

/// A URL of one server names a node of a cluster.
pub(in crate::store::redis) fn cluster_without_its_name() -> Error {
    Error::new(ErrorKind::InvalidConfig, CLUSTER)
}

/// What a server answers that is asked about its cluster.
pub(in crate::store::redis) fn of_cluster(error: &ServerError) -> Error {
    let words = error.details().unwrap_or_default();
    if words.contains("cluster support disabled") {
        let message = "this server is in no cluster; use redis:// with its host";
        return Error::new(ErrorKind::InvalidConfig, message);
    }
    call(error).0
}

/// Not all slots of a cluster are served.
pub(in crate::store::redis) fn slots_without_node(slots: usize) -> Error {
    let message = format!(
        "{slots} slots of the cluster are served by no node; look at CLUSTER INFO, and finish it \
         with redis-cli --cluster fix"
    );
    Error::new(ErrorKind::Store, message)
}

/// No node serves the slot of a lock, as far as anybody knows.
pub(in crate::store::redis) fn no_node_for_slot() -> Error {
    let message = "no node of the cluster serves the slot of this lock; look at CLUSTER INFO";
    Error::new(ErrorKind::Unreachable, message)
}

/// A cluster serves nothing, or not this slot.
pub(in crate::store::redis) fn cluster_down(answer: &Value) -> Error {
    let words = match answer {
        Value::ServerError(error) => error.details().unwrap_or_default(),
        _ => "",
    };
    let message = format!(
        "the cluster does not serve this lock at this moment; look at CLUSTER INFO ({})",
        quote(words)
    );
    Error::new(ErrorKind::Unreachable, message)
}

/// Some keys of a lock are in one node and some in another.
pub(in crate::store::redis) fn slot_is_moving() -> Error {
    let message = "the slot of this lock is on its way to another node; it works again when its keys \
                   have moved, if nobody moves them use redis-cli --cluster fix";
    Error::new(ErrorKind::Unreachable, message)
}

/// Nodes send whoever asks to each other.
pub(in crate::store::redis) fn nodes_disagree() -> Error {
    let message = "the nodes of the cluster do not agree who serves the slot of this lock";
    Error::new(ErrorKind::Unreachable, message)
}
