//! An open connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::MultiplexedConnection;
use tokio_util::sync::CancellationToken;

use super::listeners::Listeners;
use super::news::News;
use super::sentinel::Lookout;

/// An open connection, and the news that come with it.
#[derive(Debug)]
pub(super) struct Dialed {
    pub(super) connection: MultiplexedConnection,
    pub(super) standing: Arc<Standing>,
    pub(super) news: News,
    /// Who looks out for another master, if there may be one.
    pub(super) lookout: Option<Lookout>,
}

/// Whether a connection stands. Once it does not, it tells so to whoever listens.
#[derive(Debug)]
pub(super) struct Standing {
    ended: AtomicBool,
    /// Cancelled when another server has taken the place of the one there.
    replaced: CancellationToken,
    listeners: Arc<Listeners>,
}

impl Standing {
    pub(super) fn new(listeners: Arc<Listeners>) -> Self {
        Self {
            ended: AtomicBool::new(false),
            replaced: CancellationToken::new(),
            listeners,
        }
    }

    /// Whether the other side is known to be gone, or the connection is not used any more.
    pub(super) fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// From now on it does not stand.
    pub(super) fn end(&self) {
        if !self.ended.swap(true, Ordering::Relaxed) {
            self.listeners.interrupted();
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
