//! A client on a faulty store, with a clock that the test moves.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold::__private::store::{MemoryStore, Store};
use leasehold::clock::{Clock, ManualClock};
use leasehold::{Client, Guard, Mutex, State};

use crate::faulty_store::FaultyStore;
use crate::recording_store::RecordingStore;

pub(crate) const TTL: Duration = Duration::from_secs(30);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) struct Harness {
    pub(crate) clock: ManualClock,
    pub(crate) store: Arc<FaultyStore>,
    pub(crate) recorder: Arc<RecordingStore>,
    pub(crate) client: Client,
}

impl Harness {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::new();
        let memory = MemoryStore::with_clock(Arc::new(clock.clone()));
        let store = FaultyStore::new(memory, Arc::new(clock.clone()));
        Self::with(clock, store)
    }

    /// Another client of the same records, with a fault mode of its own.
    pub(crate) fn another(&self) -> Self {
        Self::with(self.clock.clone(), self.store.without_faults())
    }

    fn with(clock: ManualClock, store: FaultyStore) -> Self {
        let store = Arc::new(store);
        let recorder = RecordingStore::on(Arc::clone(&store) as Arc<dyn Store>);
        let client = Client::builder()
            .ttl(TTL)
            .clock(Arc::new(clock.clone()))
            .build(Arc::clone(&recorder) as Arc<dyn Store>)
            .unwrap();
        Self {
            clock,
            store,
            recorder,
            client,
        }
    }

    pub(crate) fn mutex(&self) -> Mutex {
        self.client.mutex("harness").unwrap()
    }

    /// The lock for another client.
    pub(crate) fn stranger(&self) -> Mutex {
        self.another().mutex()
    }

    pub(crate) async fn advance(&self, duration: Duration) {
        self.clock.advance(duration);
        settle().await;
    }

    /// Lets the time go on in steps until the guard's state is as wanted; how long it took.
    pub(crate) async fn until(&self, guard: &Guard, wanted: impl Fn(State) -> bool) -> Duration {
        let begun = self.clock.now();
        while !wanted(guard.state()) {
            let waited = self.clock.now().since(begun);
            assert!(waited < TTL * 2, "{:?}", guard.state());
            self.advance(SECOND / 10).await;
        }
        self.clock.now().since(begun)
    }
}

/// Lets every task run that can: the runtime has one thread, so each yield is a round of it.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// Polls a future once and lets the other tasks run.
pub(crate) async fn poll_once<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    let polled = future.poll(&mut Context::from_waker(Waker::noop()));
    settle().await;
    match polled {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
