//! The mutex of the parts that are model-checked: the standard one, or, under the model checker, one
//! that lets it choose who runs next.

#[cfg(not(all(test, feature = "__shuttle")))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(all(test, feature = "__shuttle"))]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};

/// A point at which the model checker may let another run, where no lock is one.
pub(crate) fn may_switch() {
    #[cfg(all(test, feature = "__shuttle"))]
    shuttle::thread::yield_now();
}

/// Locks a mutex over state that no panic can leave half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
