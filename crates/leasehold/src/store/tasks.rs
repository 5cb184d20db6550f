//! The tasks of the connections of stores, and what waits for their end.
//!
//! A runtime that ends drops its tasks one after another, in any order. As long as the tasks of a connection are left, a request
//! over it gets neither a reply nor an error. So whoever needs a reply at that time waits until the last of them is dropped,
//! and then uses a connection of another runtime.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::task::{Context, Poll};

use tokio::runtime::{Handle, Id};
use tokio::task::JoinHandle;

use super::lock::lock;

/// The tasks of each runtime that has any.
static RUNTIMES: LazyLock<Mutex<HashMap<Id, Weak<Tasks>>>> = LazyLock::new(Mutex::default);

/// All tasks of connections in one runtime, each of which holds this.
#[derive(Default)]
pub(crate) struct Tasks {
    /// Runs behind the last task.
    deferred: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl Tasks {
    /// Those of the current runtime, to which the holder belongs from now on.
    pub(crate) fn current() -> Arc<Self> {
        let mut runtimes = lock(&RUNTIMES);
        let known = runtimes.entry(Handle::current().id()).or_default();
        if let Some(tasks) = known.upgrade() {
            return tasks;
        }
        let tasks = Arc::default();
        *known = Arc::downgrade(&tasks);
        runtimes.retain(|_, tasks| tasks.strong_count() > 0);
        tasks
    }

    /// Runs `work` as soon as a runtime has no task of a connection left: immediately, or in the thread that drops the last one.
    pub(crate) fn after_last(runtime: Id, work: impl FnOnce() + Send + 'static) {
        let tasks = lock(&RUNTIMES).get(&runtime).and_then(Weak::upgrade);
        match tasks {
            Some(tasks) => lock(&tasks.deferred).push(Box::new(work)),
            None => work(),
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        let deferred = std::mem::take(&mut *lock(&self.deferred));
        for work in deferred {
            work();
        }
    }
}

/// Starts a task of a connection in the current runtime.
pub(crate) fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    tokio::spawn(Task::new(future))
}

/// A future that belongs to the tasks of the runtime in which it was made.
pub(crate) struct Task<F> {
    // Dropped before the next field: the last task has ended when its future has.
    future: Pin<Box<F>>,
    _tasks: Arc<Tasks>,
}

impl<F: Future> Task<F> {
    pub(crate) fn new(future: F) -> Self {
        Self {
            future: Box::pin(future),
            _tasks: Tasks::current(),
        }
    }
}

impl<F: Future> Future for Task<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.future.as_mut().poll(context)
    }
}
