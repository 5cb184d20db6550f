//! Mutexes, tasks and reports as the driver uses them: the usual ones, or, under the model checker, ones that
//! let it choose who runs next.

use std::panic::{AssertUnwindSafe, catch_unwind};

#[cfg(not(all(test, feature = "__shuttle")))]
pub(crate) use std::sync::{Mutex, MutexGuard};
#[cfg(not(all(test, feature = "__shuttle")))]
pub(crate) use tokio::runtime::Handle as Runtime;
#[cfg(not(all(test, feature = "__shuttle")))]
pub(crate) use tokio::task::{AbortHandle, JoinHandle};

#[cfg(all(test, feature = "__shuttle"))]
pub(crate) use self::modelled::{AbortHandle, JoinHandle, Mutex, MutexGuard, Runtime};

/// A point at which the model checker may let another run, where no lock is one.
pub(crate) fn may_switch() {
    #[cfg(all(test, feature = "__shuttle"))]
    shuttle::thread::yield_now();
}

/// Logs or counts something. A panic of the subscriber or recorder, which is foreign code, is contained.
pub(crate) fn report(what: impl FnOnce()) {
    drop(catch_unwind(AssertUnwindSafe(what)));
}

/// Locks a mutex over state that no panic can leave half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(all(test, feature = "__shuttle"))]
mod modelled {
    pub(crate) use shuttle::future::{AbortHandle, JoinHandle};
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
