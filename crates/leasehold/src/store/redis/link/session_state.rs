//! Whether a connection is still usable.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

use super::notifications::Notifications;
use crate::store::tasks::Tasks;

/// The state of a connection. When a usable one ends, all clients are notified: events may be missed from then on.
#[derive(Debug)]
pub(crate) struct SessionState {
    /// Whether it was ever usable: nobody misses an event of a connection that failed to open.
    was_usable: AtomicBool,
    ended: AtomicBool,
    /// Cancelled when another server has become the master.
    replaced: CancellationToken,
    /// What is sent to the clients over the connection.
    pub(crate) notifications: Arc<Notifications>,
}

impl SessionState {
    pub(crate) fn new(notifications: Arc<Notifications>) -> Self {
        Self {
            was_usable: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            replaced: CancellationToken::new(),
            notifications,
        }
    }

    /// Held by the task of the connection.
    pub(crate) fn end_on_drop(self: Arc<Self>) -> EndOnDrop {
        EndOnDrop {
            state: self,
            _tasks: Tasks::current(),
        }
    }

    /// Whether the connection is broken, or must no longer be used.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Marks the connection as usable: from now on its end interrupts the clients.
    pub(crate) fn mark_usable(&self) {
        self.was_usable.store(true, Ordering::Relaxed);
    }

    /// Ends the connection.
    pub(crate) fn end(&self) {
        if !self.ended.swap(true, Ordering::Relaxed) && self.was_usable.load(Ordering::Relaxed) {
            self.notifications.interrupted();
        }
    }

    /// Ends the connection because another server has become the master: replies of this one are void.
    pub(crate) fn replace(&self) {
        self.replaced.cancel();
        self.end();
    }

    pub(crate) fn is_replaced(&self) -> bool {
        self.replaced.is_cancelled()
    }

    /// Waits until another server has become the master.
    pub(crate) async fn until_replaced(&self) {
        self.replaced.cancelled().await;
    }
}

/// Ends the connection with its task, which its runtime may drop.
pub(crate) struct EndOnDrop {
    state: Arc<SessionState>,
    _tasks: Arc<Tasks>,
}

impl Deref for EndOnDrop {
    type Target = SessionState;

    fn deref(&self) -> &SessionState {
        &self.state
    }
}

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.end();
    }
}
