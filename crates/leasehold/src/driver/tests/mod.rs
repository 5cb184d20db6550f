//! The driver under a model checker, which chooses at every lock which task runs next.

#![cfg(feature = "__shuttle")]

mod recording_store;
mod shuttle_batcher;
mod shuttle_client;
mod shuttle_local_queue;
mod shuttle_shares;

use std::pin::Pin;
use std::task::Poll;

use shuttle::future::{JoinHandle, yield_now};
use shuttle::rand::{Rng, thread_rng};

use crate::store::{Key, fixture};

fn key(name: u8) -> Key {
    fixture::key(&name.to_string())
}

/// Lets others run for a random number of turns.
async fn a_while() {
    for _ in 0..thread_rng().gen_range(0..6) {
        yield_now().await;
    }
}

/// Waits until tasks have ended.
async fn ended(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        task.await.unwrap();
    }
}

/// Polls a future so many times at most.
async fn poll_times<F: Future + Unpin>(future: &mut F, mut polls: u8) -> Option<F::Output> {
    std::future::poll_fn(move |context| {
        if polls == 0 {
            return Poll::Ready(None);
        }
        polls -= 1;
        let polled = Pin::new(&mut *future).poll(context);
        if polled.is_pending() {
            context.waker().wake_by_ref();
        }
        polled.map(Some)
    })
    .await
}
