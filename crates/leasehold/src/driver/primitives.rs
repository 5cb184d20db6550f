//! The mutexes and tasks of the driver: the usual ones or, under the model checker, ones that let it choose which
//! task runs next.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

#[cfg(not(all(test, feature = "__shuttle")))]
pub(crate) use std::sync::{Mutex, MutexGuard};
#[cfg(not(all(test, feature = "__shuttle")))]
pub(crate) use tokio::runtime::Handle as Runtime;
#[cfg(not(all(test, feature = "__shuttle")))]
pub(crate) use tokio::task::{AbortHandle, JoinHandle};

#[cfg(not(all(test, feature = "__shuttle")))]
use crate::store::tasks::Tasks;

#[cfg(all(test, feature = "__shuttle"))]
pub(crate) use self::modelled::{AbortHandle, JoinHandle, Mutex, MutexGuard, Runtime, yield_now};

/// How long a task that yields waits for its worker thread at most.
#[cfg(not(all(test, feature = "__shuttle")))]
const YIELD_MAX: Duration = Duration::from_millis(1);

/// Lets the tasks run that are ready. The function of tokio binds this task to its worker thread, which one of those
/// tasks may block: then another thread goes on with it.
#[cfg(not(all(test, feature = "__shuttle")))]
pub(crate) async fn yield_now() {
    tokio::select! {
        biased;
        () = tokio::task::yield_now() => {}
        () = tokio::time::sleep(YIELD_MAX) => {}
    }
}

/// A point, besides each lock, at which the model checker may let another task run.
pub(crate) fn may_switch() {
    #[cfg(all(test, feature = "__shuttle"))]
    shuttle::thread::yield_now();
}

/// Whether the current runtime has timers. Tokio has no query for that.
pub(crate) fn has_timers() -> bool {
    let sleep = || {
        let mut context = Context::from_waker(Waker::noop());
        let _ = pin!(tokio::time::sleep(Duration::ZERO)).poll(&mut context);
    };
    catch_unwind(sleep).is_ok()
}

/// Runs `work` as soon as a runtime has no task of a store's connection left.
#[cfg(not(all(test, feature = "__shuttle")))]
pub(crate) fn after_connections(runtime: &Runtime, work: impl FnOnce() + Send + 'static) {
    Tasks::after_last(runtime.id(), work);
}

#[cfg(all(test, feature = "__shuttle"))]
pub(crate) fn after_connections(_: &Runtime, work: impl FnOnce() + Send + 'static) {
    work();
}

/// Logs or counts something. Log and metric sinks are foreign code: a panic in one must not affect a lease.
pub(crate) fn report(emit: impl FnOnce()) {
    drop(catch_unwind(AssertUnwindSafe(emit)));
}

/// Locks a mutex whose data is consistent even after a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(all(test, feature = "__shuttle"))]
pub(super) mod modelled {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::pin::pin;
    use std::task::Poll;

    pub(crate) use shuttle::future::{AbortHandle, JoinHandle, yield_now};
    pub(crate) use shuttle::sync::{Mutex, MutexGuard};
    use tokio::runtime::{Handle, TryCurrentError};

    /// The model checker's own runtime.
    #[derive(Clone, Debug)]
    pub(crate) struct Runtime;

    impl Runtime {
        pub(crate) fn try_current() -> Result<Self, TryCurrentError> {
            Handle::try_current().map(|_| Self)
        }

        pub(crate) fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
        where
            F: Future + Send + 'static,
            F::Output: Send,
        {
            shuttle::future::spawn(async {
                match survived(future).await {
                    Some(output) => output,
                    None => std::future::pending().await,
                }
            })
        }
    }

    /// The payload of a panic that a model causes. As with tokio, it ends only its task.
    pub(crate) struct ModelPanic;

    /// The output of a future. `None`: a panic of the model has ended it.
    pub(crate) async fn survived<F: Future>(future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        let poll = std::future::poll_fn(|context| {
            let poll = AssertUnwindSafe(|| future.as_mut().poll(context));
            match catch_unwind(poll) {
                Ok(poll) => poll.map(Some),
                Err(panic) if panic.is::<ModelPanic>() => Poll::Ready(None),
                Err(panic) => resume_unwind(panic),
            }
        });
        poll.await
    }
}

#[cfg(all(test, not(feature = "__shuttle")))]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::yield_now;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_task_that_blocks_its_worker_thread_does_not_stop_one_that_yields() {
        let (yielded, end_of_yield) = mpsc::channel();
        let yielding = tokio::spawn(async move {
            // This worker thread runs it as soon as this task yields.
            let blocking =
                tokio::spawn(
                    async move { end_of_yield.recv_timeout(Duration::from_secs(60)).is_ok() },
                );
            yield_now().await;
            yielded.send(()).ok();
            blocking.await
        });
        assert!(yielding.await.unwrap().unwrap());
    }
}
