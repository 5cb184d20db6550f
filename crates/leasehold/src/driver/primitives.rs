//! The mutexes and tasks of the driver: the usual ones or, under the model checker, ones that let it choose which
//! task runs next.

use std::panic::{AssertUnwindSafe, catch_unwind};

#[cfg(not(all(test, feature = "__shuttle")))]
pub(crate) use std::sync::{Mutex, MutexGuard};
#[cfg(not(all(test, feature = "__shuttle")))]
pub(crate) use tokio::runtime::Handle as Runtime;
#[cfg(not(all(test, feature = "__shuttle")))]
pub(crate) use tokio::task::{AbortHandle, JoinHandle, yield_now};

#[cfg(all(test, feature = "__shuttle"))]
pub(crate) use self::modelled::{AbortHandle, JoinHandle, Mutex, MutexGuard, Runtime, yield_now};

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
mod modelled {
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
            shuttle::future::spawn(future)
        }
    }
}
