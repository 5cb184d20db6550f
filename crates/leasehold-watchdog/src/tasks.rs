//! The tasks of a node. They end with it.

use std::sync::{Mutex, PoisonError};

use tokio::task::{AbortHandle, JoinSet};

/// Tasks that somebody stops.
#[derive(Debug)]
pub(crate) struct Tasks(Mutex<Option<JoinSet<()>>>);

impl Default for Tasks {
    fn default() -> Self {
        Self(Mutex::new(Some(JoinSet::new())))
    }
}

impl Tasks {
    /// Starts one, unless they were stopped.
    pub(crate) fn spawn(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Option<AbortHandle> {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tasks = tasks.as_mut()?;
        // Those that have ended are only kept until somebody looks.
        while tasks.try_join_next().is_some() {}
        Some(tasks.spawn(task))
    }

    /// Stops all.
    pub(crate) fn stop(&self) {
        // Dropped when the lock is free: what they leave behind may ask for the tasks.
        drop(self.take());
    }

    /// Stops all, and waits until they have ended.
    pub(crate) async fn shut_down(&self) {
        if let Some(mut tasks) = self.take() {
            tasks.shutdown().await;
        }
    }

    fn take(&self) -> Option<JoinSet<()>> {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.take()
    }
}
