//! The messages between clients and nodes of the watchdog, and the directions of all messages.

use leasehold_core::ClientId;
use leasehold_core::watchdog::Changes;

/// The direction of a message on the connection to the store, or to a node of the watchdog.
#[derive(Clone, Copy)]
pub(super) enum Direction {
    FromClient = 0,
    ToClient = 1,
}

/// A message to a node, and the process and the connection that it comes from.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) machine: usize,
    pub(super) client: ClientId,
    pub(super) connection: u64,
    pub(super) message: ToNode,
}

/// A message to a node, or what it observes of a client.
#[derive(Clone, Debug)]
pub(super) enum ToNode {
    Hello,
    Changes(Changes<u64>),
    Heartbeat,
    /// The connection has ended.
    Closed,
    /// The process has ended.
    Died,
}

/// A message of a node to a client, or what the client observes of the node.
#[derive(Clone, Copy, Debug)]
pub(super) enum FromNode {
    Welcome,
    /// The node has processed the batch with this number.
    Acknowledged(u64),
    /// The connection has ended.
    Ended,
}
