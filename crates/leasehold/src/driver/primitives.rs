//! The mutexes and tasks of the driver: the usual ones or, under the model checker, ones that let it choose which
//! task runs next.

use std::panic::{AssertUnwindSafe, catch_unwind};
#[cfg(not(all(test, feature = "__shuttle")))]
use std::task::Poll;

#[cfg(not(all(test, feature = "__shuttle")))]
pub(crate) use std::sync::{Mutex, MutexGuard};
#[cfg(not(all(test, feature = "__shuttle")))]
pub(crate) use tokio::runtime::Handle as Runtime;
#[cfg(not(all(test, feature = "__shuttle")))]
pub(crate) use tokio::task::{AbortHandle, JoinHandle};

#[cfg(all(test, feature = "__shuttle"))]
pub(crate) use self::modelled::{AbortHandle, JoinHandle, Mutex, MutexGuard, Runtime, yield_now};

/// Lets the tasks run that are ready. Unlike the function of tokio, it does not bind this task to its worker thread, which
/// one of those tasks may block.
#[cfg(not(all(test, feature = "__shuttle")))]
pub(crate) async fn yield_now() {
    let mut has_yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A point, besides each lock, at which the model checker may let another task run.
pub(crate) fn may_switch() {
    #[cfg(all(test, feature = "__shuttle"))]
    shuttle::thread::yield_now();
}

/// Logs or counts something. Log and metric sinks are foreign code: a panic in one must not affect a lease.
pub(crate) fn report(emit: impl FnOnce()) {
    drop(catch_unwind(AssertUnwindSafe(emit)));
}

/// Locks a mutex whose data is consistent after a panic, too.
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
