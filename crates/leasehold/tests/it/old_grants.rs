//! A grant that a stopped process reads long after it has expired.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use leasehold::Client;
use leasehold::clock::ManualClock;
use leasehold::store::{
    BoxFuture, Event, ForwardingStore, Key, Keyspace, Listener, MemoryStore, Reply, Request, Store,
};
use leasehold_core::{ClientId, Grant, LeaseId, Loss, Notice, Op, Outcome, StoreTime, Token, Ttl};

use crate::harness::{SECOND, TTL, poll_once, settle};

/// A store that refuses every acquisition. Before its second reply it sends the grant that arrived while the
/// client was stopped; since then its clock was set back.
#[derive(Debug, Default)]
struct SetBack {
    inner: MemoryStore,
    listener: Mutex<Option<Weak<dyn Listener>>>,
    requests: AtomicU64,
}

impl SetBack {
    fn grants(&self, key: &Key, lease: LeaseId) {
        let listener = self.listener.lock().unwrap().clone();
        let listener = listener.and_then(|listener| listener.upgrade()).unwrap();
        let grant = Grant {
            lease,
            ttl: Ttl::checked(3 * SECOND).unwrap(),
            first: Token::new(7).unwrap(),
            now: StoreTime::from_micros(1_010_000_000),
        };
        listener.notify(Event::Notice(key.clone(), Notice::Granted(grant)));
    }

    fn answer(&self, request: &Request) -> Reply {
        let (outcome, seconds) = match &request.op {
            Op::Acquire { lease, .. } => {
                let request_number = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
                if request_number == 2 {
                    self.grants(&request.key, *lease);
                }
                let refused = Outcome::Refused {
                    time_left: SECOND,
                    queue_position: Some(0),
                };
                (refused, 1_000 + request_number)
            }
            _ => (Outcome::Lost(Loss::Gone), 1_000),
        };
        let now = Some(StoreTime::from_micros(seconds * 1_000_000));
        Reply::Applied { outcome, now }
    }
}

impl ForwardingStore for SetBack {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        let replies = batch.iter().map(|request| self.answer(request)).collect();
        Box::pin(std::future::ready(replies))
    }

    fn listen(&self, _: &Keyspace, _: ClientId, listener: Weak<dyn Listener>) {
        *self.listener.lock().unwrap() = Some(listener);
    }
}

impl fmt::Display for SetBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("set-back:")
    }
}

/// The process resumes and repeats its request, because its timer has expired; then it reads the old grant, and
/// then the refusal. The grant looks younger than the refusal, but is not: it is verified.
#[tokio::test]
async fn an_old_grant_is_not_used_after_the_clock_was_set_back() {
    let clock = ManualClock::new();
    let store = Arc::new(SetBack::default());
    let builder = Client::builder().ttl(TTL).clock(Arc::new(clock.clone()));
    let client = builder.build(Arc::clone(&store) as Arc<dyn Store>).unwrap();
    let mutex = client.mutex("a").unwrap();
    let mut lock = pin!(mutex.lock());
    assert!(poll_once(lock.as_mut()).await.is_none());
    clock.advance(TTL);
    for _ in 0..10 {
        assert!(poll_once(lock.as_mut()).await.is_none());
        settle().await;
    }
    assert_eq!(store.requests.load(Ordering::SeqCst), 3);
}
