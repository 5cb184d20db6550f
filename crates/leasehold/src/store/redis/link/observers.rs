//! Who observes names over the connections to a server, or to the nodes of a cluster.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use crate::store::api::{Changed, Key};
use crate::store::observers::Observers;

/// The time after which all observers read again. A server whose tracking table is full does not report every key
/// that it drops, and a slot of a cluster that has no keys moves without a report.
const READ_AGAIN: Duration = Duration::from_secs(10);

/// The observers over the connections to a server, or to the nodes of a cluster.
#[derive(Debug, Default)]
pub(crate) struct ServerObservers {
    observers: Observers,
    /// Whether there was an observer ever. Without one, no name is looked up.
    in_use: AtomicBool,
    added: Notify,
}

impl ServerObservers {
    /// Adds an observer of a name, before the name is read.
    pub(crate) fn add(&self, key: &Key) -> Changed {
        let changed = self.observers.add(key);
        self.in_use.store(true, Ordering::Release);
        self.added.notify_one();
        changed
    }

    /// Whether there was an observer ever.
    pub(crate) fn in_use(&self) -> bool {
        self.in_use.load(Ordering::Acquire)
    }

    /// Notifies the observers of a name.
    pub(crate) fn notify(&self, key: &Key) {
        if self.in_use() {
            self.observers.notify(key);
        }
    }

    /// Notifies all observers.
    pub(crate) fn notify_all(&self) {
        if self.in_use() {
            self.observers.notify_all();
        }
    }

    /// Notifies the observers of these names when the returned value is dropped, also by a caller that was cancelled:
    /// a server does not report changes to the connection that made them. Their next reading goes over that connection,
    /// behind the change.
    pub(crate) fn own_changes<'a>(&'a self, keys: &'a [Key]) -> OwnChanges<'a> {
        OwnChanges {
            observers: self,
            keys,
        }
    }

    /// Lets observers read again after a while, as long as the connection lives.
    pub(crate) async fn run(&self) {
        loop {
            self.added.notified().await;
            sleep(READ_AGAIN).await;
            self.observers.notify_all();
        }
    }
}

/// Names that are about to be changed over our own connection.
#[must_use = "it notifies when it is dropped"]
pub(crate) struct OwnChanges<'a> {
    observers: &'a ServerObservers,
    keys: &'a [Key],
}

impl Drop for OwnChanges<'_> {
    fn drop(&mut self) {
        for key in self.keys {
            self.observers.notify(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::api::fixture::key;

    #[tokio::test(start_paused = true)]
    async fn an_observer_reads_again_after_a_while() {
        let observers = ServerObservers::default();
        for _ in 0..2 {
            let changed = observers.add(&key("a"));
            let begun = tokio::time::Instant::now();
            tokio::select! {
                () = observers.run() => {}
                changed = changed => assert_eq!(changed, Ok(())),
            }
            assert_eq!(begun.elapsed(), READ_AGAIN);
        }
    }
}
