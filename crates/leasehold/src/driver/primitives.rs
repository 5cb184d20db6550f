//! The mutex of the parts that are model-checked: the standard one, or, under the model checker, one
//! that lets it choose who runs next.

#[cfg(not(feature = "__shuttle"))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(feature = "__shuttle")]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};

/// Locks a mutex over state that no panic can leave half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
