//! An acquisition that is dropped at any point leaves nothing held.
//!
//! Every future is polled a given number of times, each time when it has been woken, and then
//! dropped; the number goes up until the future ends before it is reached.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use leasehold::{Client, LeaseOptions, Mutex};
use leasehold_testkit::eventually_async;

use crate::fixture::{Fixture, fresh_name};
use crate::waiters::SOON;

/// Polls `future` at most `polls` times. `true`: it has ended.
async fn poll_times(future: impl Future, polls: usize) -> bool {
    let mut future = pin!(future);
    let mut polled = 0;
    std::future::poll_fn(|context| {
        if polled == polls {
            return Poll::Ready(false);
        }
        polled += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            // The last poll allowed: do not wait for a wake-up that would have no use.
            Poll::Pending if polled == polls => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

async fn is_free(client: &Client, name: &str) {
    let mutex = client.mutex(name).unwrap();
    // The ttl is 30 s: within `SOON` only a release can have freed it.
    eventually_async(SOON, async || mutex.inspect().await.unwrap().is_none()).await;
}

async fn dropped_at_every_poll<F: Future>(fixture: &Fixture, acquire: impl Fn(Mutex) -> F) {
    let (client, observer) = (fixture.client().await, fixture.client().await);
    for polls in 0.. {
        assert!(polls < 1_000, "the future never ends");
        let name = fresh_name("cancel");
        let ended = poll_times(acquire(client.mutex(&name).unwrap()), polls).await;
        is_free(&observer, &name).await;
        if ended {
            return;
        }
    }
}

async fn dropped_while_waiting(fixture: &Fixture) {
    let (client, holder) = (fixture.client().await, fixture.client().await);
    // A waiter is woken once a second at most: more polls would take long and show nothing new.
    for polls in 1..4 {
        let name = fresh_name("cancel-wait");
        let guard = holder.mutex(&name).unwrap().lock().await.unwrap();
        let mutex = client.mutex(&name).unwrap();
        assert!(!poll_times(mutex.lock(), polls).await);
        guard.release().await.unwrap();
        is_free(&holder, &name).await;
    }
}

pub(super) async fn a_dropped_acquisition_leaves_nothing(fixture: Fixture) {
    dropped_at_every_poll(&fixture, async |mutex: Mutex| mutex.lock().await.unwrap()).await;
    dropped_at_every_poll(&fixture, async |mutex: Mutex| {
        mutex.try_lock().await.unwrap()
    })
    .await;
    dropped_at_every_poll(&fixture, async |mutex: Mutex| {
        mutex.lock_timeout(SOON).await.unwrap()
    })
    .await;
    dropped_at_every_poll(&fixture, async |mutex: Mutex| {
        let owner = leasehold::Owner::new();
        let mutex = mutex.with(LeaseOptions::new().owner(&owner)).unwrap();
        let outer = mutex.lock().await.unwrap();
        let inner = mutex.lock().await.unwrap();
        inner.release().await.unwrap();
        outer.release().await.unwrap();
    })
    .await;
    dropped_at_every_poll(&fixture, async |mutex: Mutex| {
        mutex.run(async |_| tokio::task::yield_now().await).await
    })
    .await;
    dropped_while_waiting(&fixture).await;
}
