//! Futures side by side, without a task.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Waits for all, and gives what they give in their order.
pub(super) async fn all<T, F>(futures: Vec<F>) -> Vec<T>
where
    T: Send,
    F: Future<Output = T> + Send,
{
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut pending = false;
        for (future, done) in futures.iter_mut().zip(&mut done) {
            if done.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(value) => *done = Some(value),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    })
    .await;
    done.into_iter().flatten().collect()
}

/// Waits for the first that succeeds, or for the last that fails. `None`: there are none.
pub(super) async fn first<'a, T, E>(
    mut futures: Vec<Boxed<'a, Result<T, E>>>,
) -> Option<Result<T, E>> {
    let mut last = None;
    poll_fn(|context| {
        let mut nth = 0;
        while let Some(future) = futures.get_mut(nth) {
            match future.as_mut().poll(context) {
                Poll::Ready(Ok(value)) => return Poll::Ready(Some(Ok(value))),
                Poll::Ready(error) => {
                    last = Some(error);
                    drop(futures.remove(nth));
                }
                Poll::Pending => nth += 1,
            }
        }
        if futures.is_empty() {
            Poll::Ready(last.take())
        } else {
            Poll::Pending
        }
    })
    .await
}
