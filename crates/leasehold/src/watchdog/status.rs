//! The connections of a client to the nodes of its watchdog.

use futures_util::future::select_all;
use tokio::sync::watch;

use crate::Error;

/// The connections of a client to the nodes of its watchdog, and their changes. Made by
/// [`Client::watchdog_status`](crate::Client::watchdog_status).
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct WatchdogStatus(pub(crate) Vec<(String, watch::Receiver<NodeState>)>);

/// The connection to a node. Made by [`WatchdogStatus`].
#[doc(hidden)]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The address of the node.
    pub node: String,
    /// The state of the connection.
    pub state: NodeState,
}

/// The state of the connection to a node. `Unreachable` and `Refused` last until a later attempt to connect succeeds, or
/// fails in the other way.
#[doc(hidden)]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum NodeState {
    /// The first attempt to connect has not ended.
    Connecting,
    /// The node watches the leases of the client.
    Connected,
    /// There is no connection to a node at this address.
    Unreachable(Error),
    /// The node refuses the client: it does not serve the store, for example.
    Refused(Error),
}

impl WatchdogStatus {
    /// The present states. Empty for a client without a watchdog.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeStatus> {
        let nodes = self.0.iter();
        nodes
            .map(|(node, state)| NodeStatus {
                node: node.clone(),
                state: state.borrow().clone(),
            })
            .collect()
    }

    /// Waits for a change of a state, and returns the new state: first the result of the first attempt to connect to
    /// each node. Of several changes between two calls, only the newest is returned. `None` after the client has
    /// ended, and for a client without a watchdog.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no change.
    pub async fn changed(&mut self) -> Option<NodeStatus> {
        while !self.0.is_empty() {
            let changes = self.0.iter_mut();
            let changes = changes.map(|(_, state)| Box::pin(state.changed()));
            let (changed, index, _) = select_all(changes).await;
            if changed.is_err() {
                self.0.remove(index);
                continue;
            }
            let Some((node, state)) = self.0.get_mut(index) else {
                continue;
            };
            let state = state.borrow_and_update().clone();
            return Some(NodeStatus {
                node: node.clone(),
                state,
            });
        }
        None
    }
}
