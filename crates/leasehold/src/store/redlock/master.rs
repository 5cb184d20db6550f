//! One of the masters.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::Op;
use tokio::time::Instant;

use super::orphans::Orphans;
use crate::store::api::{BoxFuture, Reply, Request, Store};
use crate::store::redis::RedisStore;
use crate::{Error, ErrorKind};

/// How many calls to one master may be without an answer. One that is stopped gets no more: the others
/// decide, and what waits for it would only pile up.
const UNDER_WAY_MAX: usize = 64;

/// How long a master that failed twice in a row is left alone at first, and at most.
const REST_MIN: Duration = Duration::from_millis(25);
const REST_MAX: Duration = Duration::from_secs(1);

/// A master, and what is known of its health.
#[derive(Debug)]
pub(super) struct Master {
    pub(super) store: RedisStore,
    under_way: AtomicUsize,
    /// What a round trip takes, in nanoseconds, averaged.
    round_trip: AtomicU64,
    health: Mutex<Health>,
    orphans: Orphans,
}

#[derive(Debug, Default)]
struct Health {
    failures: u32,
    rests_until: Option<Instant>,
    error: Option<Error>,
}

impl Master {
    pub(super) fn new(store: RedisStore) -> Self {
        Self {
            store,
            under_way: AtomicUsize::new(0),
            round_trip: AtomicU64::new(0),
            health: Mutex::default(),
            orphans: Orphans::default(),
        }
    }

    /// Takes requests to the master. They are sent when this is first polled, if there is a connection.
    pub(super) fn ask(self: &Arc<Self>, requests: Vec<Request>) -> BoxFuture<'static, Vec<Reply>> {
        let node = Arc::clone(self);
        let in_flight = self.orphans.begin(&requests);
        Box::pin(async move {
            // What gives something back is always told.
            let gives_back = |request: &Request| matches!(request.op, Op::Release { .. });
            if let Some(error) = node.rests().filter(|_| !requests.iter().any(gives_back)) {
                return vec![Reply::Rejected(error); requests.len()];
            }
            let begun = Instant::now();
            let replies = {
                let _under_way = UnderWay::new(&node);
                node.store.apply(requests).await
            };
            node.note(begun, &replies);
            let again = in_flight.end(&replies);
            if !again.is_empty() {
                node.store.apply(again).await;
            }
            replies
        })
    }

    /// What a round trip takes here.
    pub(super) fn round_trip(&self) -> Duration {
        Duration::from_nanos(self.round_trip.load(Ordering::Relaxed))
    }

    /// Why it is not asked now, if it is not.
    fn rests(&self) -> Option<Error> {
        if self.under_way.load(Ordering::Relaxed) >= UNDER_WAY_MAX {
            let message = "no answer yet to what it was asked before";
            return Some(Error::new(ErrorKind::Unreachable, message).at_store(&self.store));
        }
        let mut health = self.health();
        let until = health.rests_until?;
        let now = Instant::now();
        if now < until {
            return health.error.clone();
        }
        // One tries; the others wait for what becomes of it.
        health.rests_until = Some(now + REST_MIN);
        None
    }

    fn note(&self, begun: Instant, replies: &[Reply]) {
        let failed = replies.iter().find_map(|reply| match reply {
            Reply::Rejected(error) | Reply::Unknown(error)
                if error.kind() == ErrorKind::Unreachable =>
            {
                Some(error)
            }
            _ => None,
        });
        let mut health = self.health();
        match failed {
            None => {
                *health = Health::default();
                drop(health);
                let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
                let before = self.round_trip.load(Ordering::Relaxed);
                let average = if before == 0 {
                    took
                } else {
                    before - before / 8 + took / 8
                };
                self.round_trip.store(average, Ordering::Relaxed);
            }
            Some(error) => {
                health.failures = health.failures.saturating_add(1);
                health.error = Some(error.clone());
                // A connection that broke is fixed by asking again.
                if health.failures > 1 {
                    let rest = REST_MIN * 2_u32.saturating_pow(health.failures.min(16) - 2);
                    health.rests_until = Some(Instant::now() + rest.min(REST_MAX));
                }
            }
        }
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct UnderWay<'a>(&'a AtomicUsize);

impl<'a> UnderWay<'a> {
    fn new(node: &'a Master) -> Self {
        node.under_way.fetch_add(1, Ordering::Relaxed);
        Self(&node.under_way)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
