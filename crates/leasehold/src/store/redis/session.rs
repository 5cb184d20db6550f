//! An open connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::MultiplexedConnection;
use tokio_util::sync::CancellationToken;

use super::notifications::Notifications;
use super::sentinel::FailoverMonitor;
use super::subscriptions::Subscriptions;

/// An open connection, and the subscriptions that come with it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) connection: MultiplexedConnection,
    pub(super) state: Arc<SessionState>,
    pub(super) subscriptions: Subscriptions,
    /// Who looks out for another master, if there may be one.
    pub(super) failover_monitor: Option<FailoverMonitor>,
}

/// Whether a connection stands. Once it does not, it tells so to whoever listens.
#[derive(Debug)]
pub(super) struct SessionState {
    ended: AtomicBool,
    /// Cancelled when another server has taken the place of the one there.
    replaced: CancellationToken,
    notifications: Arc<Notifications>,
}

impl SessionState {
    pub(super) fn new(notifications: Arc<Notifications>) -> Self {
        Self {
            ended: AtomicBool::new(false),
            replaced: CancellationToken::new(),
            notifications,
        }
    }

    /// Whether the other side is known to be gone, or the connection is not used any more.
    pub(super) fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// From now on it does not stand.
    pub(super) fn end(&self) {
        if !self.ended.swap(true, Ordering::Relaxed) {
            self.notifications.interrupted();
        }
    }

    /// Another server has taken the place of the one there: whatever that says is of no worth.
    pub(super) fn replaced(&self) {
        self.replaced.cancel();
        self.end();
    }

    pub(super) fn is_replaced(&self) -> bool {
        self.replaced.is_cancelled()
    }

    /// Waits until it is so.
    pub(super) async fn until_replaced(&self) {
        self.replaced.cancelled().await;
    }
}
