//! An open connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::MultiplexedConnection;

use super::listeners::Listeners;
use super::news::News;

/// An open connection, and the news that come with it.
#[derive(Debug)]
pub(super) struct Dialed {
    pub(super) connection: MultiplexedConnection,
    pub(super) standing: Arc<Standing>,
    pub(super) news: News,
}

/// Whether a connection stands. Once it does not, it tells so to whoever listens.
#[derive(Debug)]
pub(super) struct Standing {
    ended: AtomicBool,
    listeners: Arc<Listeners>,
}

impl Standing {
    pub(super) fn new(listeners: Arc<Listeners>) -> Self {
        Self {
            ended: AtomicBool::new(false),
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
}
