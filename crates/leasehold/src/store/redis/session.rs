//! An open connection.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;

use super::session_state::SessionState;
use super::subscriptions::Subscriptions;

/// An open connection, and the subscriptions on it.
#[derive(Debug)]
pub(super) struct Session {
    /// Distinguishes it from all others of this process.
    pub(super) id: u64,
    pub(super) connection: MultiplexedConnection,
    pub(super) state: Arc<SessionState>,
    pub(super) subscriptions: Subscriptions,
    /// Detects a new master, if there are sentinels. Dropping it stops its tasks.
    pub(super) failover_monitor: Option<JoinSet<()>>,
}
