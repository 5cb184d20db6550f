//! Tasks that wait for a lock.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold::{Guard, Mutex};
use tokio::task::JoinHandle;

/// Longer than every wait of a test, and shorter than the ttl of 30 s.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Polls a future once, and spawns a task for the rest.
pub(crate) fn spawn_polled<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    let mut future = Box::pin(future);
    let first = poll_once(&mut future);
    tokio::spawn(async move {
        match first {
            Poll::Ready(output) => output,
            Poll::Pending => future.await,
        }
    })
}

/// A task that has entered the local queue of a lock.
pub(crate) fn spawn_waiter(mutex: &Mutex) -> JoinHandle<Guard> {
    let mutex = mutex.clone();
    spawn_polled(async move { mutex.lock().await.unwrap() })
}

/// A waiter in the local queue of a lock that runs only when the test polls it.
pub(crate) fn sleeping(mutex: &Mutex) -> Pin<Box<impl Future<Output = Guard> + use<>>> {
    let mutex = mutex.clone();
    let mut waiting = Box::pin(async move { mutex.lock().await.unwrap() });
    assert!(poll_once(&mut waiting).is_pending());
    waiting
}

/// The output of a task that is about to end.
#[track_caller]
pub(crate) fn soon<T>(task: JoinHandle<T>) -> impl Future<Output = T> {
    let caller = std::panic::Location::caller();
    async move {
        let outcome = tokio::time::timeout(SOON, task).await;
        let outcome = outcome.unwrap_or_else(|_| panic!("not served, {caller}"));
        outcome.unwrap()
    }
}

pub(crate) fn poll_once<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}
