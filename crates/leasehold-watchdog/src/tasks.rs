//! The background tasks of a node. They end with it.

use std::sync::{Mutex, PoisonError};

use tokio::task::{AbortHandle, JoinSet};

/// A set of tasks that are aborted together.
#[derive(Debug)]
pub(crate) struct Tasks(Mutex<Option<JoinSet<()>>>);

impl Default for Tasks {
    fn default() -> Self {
        Self(Mutex::new(Some(JoinSet::new())))
    }
}

impl Tasks {
    /// Starts a task. `None`: the set was stopped.
    pub(crate) fn spawn(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Option<AbortHandle> {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tasks = tasks.as_mut()?;
        // Removes the tasks that have ended.
        while tasks.try_join_next().is_some() {}
        Some(tasks.spawn(task))
    }

    /// Aborts all tasks.
    pub(crate) fn stop(&self) {
        // Dropped outside the lock: the drop of a task may spawn another one.
        drop(self.take());
    }

    /// Aborts all tasks and waits until they have ended.
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
