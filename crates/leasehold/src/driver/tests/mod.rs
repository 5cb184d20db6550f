//! The driver under a model checker, which chooses at every lock which task runs next.

#![cfg(feature = "__shuttle")]

mod recording_store;
mod shuttle_client;
mod shuttle_local_queue;

use shuttle::future::yield_now;
use shuttle::rand::{Rng, thread_rng};

/// Lets others run for a random number of turns.
async fn a_while() {
    for _ in 0..thread_rng().gen_range(0..6) {
        yield_now().await;
    }
}
