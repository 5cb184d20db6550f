//! One of the masters.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::quorum::{Orphans, Replied};
use leasehold_core::{Acquire, LeaseId, Op, Outcome, StoreTime};
use tokio::time::Instant;

use crate::store::api::{BoxFuture, Reply, Request, Store};
use crate::store::lock::lock;
use crate::store::redis::RedisStore;
use crate::store::redis::master::ConnectionId;
use crate::{Error, ErrorKind};

/// The number of calls in flight to one master. A master that is stopped gets no more: the others decide, and
/// calls to it would only pile up.
const IN_FLIGHT_MAX: usize = 64;

/// The first and the longest backoff of a master that failed twice in a row.
const BACKOFF_MIN: Duration = Duration::from_millis(25);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// A master and its health.
#[derive(Debug)]
pub(super) struct Master {
    pub(super) store: RedisStore,
    /// Its time in a reply, and when that arrived.
    clock: Mutex<Option<(StoreTime, Instant)>>,
    in_flight: AtomicUsize,
    /// The average round trip in nanoseconds.
    round_trip: AtomicU64,
    health: Mutex<Health>,
    orphans: Mutex<Orphans<ConnectionId>>,
}

#[derive(Debug, Default)]
struct Health {
    failures: u32,
    backoff_until: Option<Instant>,
    error: Option<Error>,
}

impl Master {
    pub(super) fn new(store: RedisStore) -> Self {
        Self {
            store,
            clock: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            round_trip: AtomicU64::new(0),
            health: Mutex::default(),
            orphans: Mutex::default(),
        }
    }

    /// Applies requests at the master. If there is a connection, they are sent at the first poll: if they are `in_order`,
    /// before all later calls.
    pub(super) fn apply(
        self: &Arc<Self>,
        requests: Vec<Request>,
        in_order: bool,
    ) -> BoxFuture<'static, Vec<Reply>> {
        let node = Arc::clone(self);
        let connection = self.store.ready_connection().filter(|_| in_order);
        let mut acquisitions = Acquisitions::begin(&node, &requests, connection);
        Box::pin(async move {
            // A release is always sent.
            let releases = |request: &Request| matches!(request.op, Op::Release { .. });
            if let Some(error) = node.backoff().filter(|_| !requests.iter().any(releases)) {
                return vec![Reply::Rejected(error); requests.len()];
            }
            let begun = Instant::now();
            let replies = {
                let _in_flight = InFlight::new(&node);
                node.store.apply(requests).await
            };
            node.note(begun, &replies);
            let again = acquisitions.end(&replies, node.store.ready_connection());
            if !again.is_empty() {
                node.store.apply(again).await;
            }
            replies
        })
    }

    /// Notes the master's time in a reply that has just arrived.
    pub(super) fn note_time(&self, time: StoreTime, now: Instant) {
        *lock(&self.clock) = Some((time, now));
    }

    /// The estimate of the master's time. It is behind by the time that the reply travelled, which is less than a round
    /// trip. `None`: there was no reply yet.
    pub(super) fn time(&self) -> Option<StoreTime> {
        let (time, at) = (*lock(&self.clock))?;
        Some(time.after_span(at.elapsed()))
    }

    /// The average round trip.
    pub(super) fn round_trip(&self) -> Duration {
        Duration::from_nanos(self.round_trip.load(Ordering::Relaxed))
    }

    /// Why the master is not called now, if so.
    fn backoff(&self) -> Option<Error> {
        if self.in_flight.load(Ordering::Relaxed) >= IN_FLIGHT_MAX {
            let message = "too many earlier requests have no reply";
            return Some(Error::new(ErrorKind::Unreachable, message).at_store(&self.store));
        }
        let mut health = lock(&self.health);
        let until = health.backoff_until?;
        let now = Instant::now();
        if now < until {
            return health.error.clone();
        }
        // One call tries again; the others wait for its result.
        health.backoff_until = Some(now + BACKOFF_MIN);
        None
    }

    fn note(&self, begun: Instant, replies: &[Reply]) {
        let now = Instant::now();
        if let Some(time) = replies.iter().rev().find_map(time) {
            self.note_time(time, now);
        }
        let mut errors = replies.iter().filter_map(|reply| reply.outcome().err());
        let failed = errors.find(|error| error.kind() == ErrorKind::Unreachable);
        let mut health = lock(&self.health);
        match failed {
            None => {
                *health = Health::default();
                drop(health);
                let took = u64::try_from((now - begun).as_nanos()).unwrap_or(u64::MAX);
                let before = self.round_trip.load(Ordering::Relaxed);
                let average = match before {
                    0 => took,
                    _ => before - before / 8 + took / 8,
                };
                self.round_trip.store(average, Ordering::Relaxed);
            }
            Some(error) => {
                health.failures = health.failures.saturating_add(1);
                health.error = Some(error.clone());
                // The next call repairs a broken connection.
                if health.failures > 1 {
                    let backoff = BACKOFF_MIN * 2_u32.saturating_pow(health.failures.min(16) - 2);
                    health.backoff_until = Some(now + backoff.min(BACKOFF_MAX));
                }
            }
        }
    }
}

/// The acquisitions of one call.
struct Acquisitions {
    node: Arc<Master>,
    /// The leases, their positions in the call, and their releases.
    leases: Vec<(LeaseId, usize, Request)>,
}

impl Acquisitions {
    /// Registers a call that is sent over `connection` immediately, if there is one. Must be called in the order
    /// in which the calls are made.
    fn begin(node: &Arc<Master>, requests: &[Request], connection: Option<ConnectionId>) -> Self {
        let mut orphans = lock(&node.orphans);
        let mut leases = Vec::new();
        for (nth, request) in requests.iter().enumerate() {
            orphans.begin(&request.op, connection);
            if let Op::Acquire(Acquire { lease, .. }) = request.op {
                let op = Op::release(lease);
                let release = Request::new(request.key.clone(), op);
                leases.push((lease, nth, release.durability(request.durability)));
            }
        }
        let node = Arc::clone(node);
        Self { node, leases }
    }

    /// Ends the call, by its replies, while requests are sent over `connection`. Returns the releases to repeat.
    fn end(&mut self, replies: &[Reply], connection: Option<ConnectionId>) -> Vec<Request> {
        let mut orphans = lock(&self.node.orphans);
        let leases = std::mem::take(&mut self.leases).into_iter();
        let orphaned = leases
            .filter(|(lease, nth, _)| orphans.end(*lease, replied(replies.get(*nth)), connection));
        orphaned.map(|(_, _, release)| release).collect()
    }
}

impl Drop for Acquisitions {
    /// Without replies, nothing is repeated.
    fn drop(&mut self) {
        let mut orphans = lock(&self.node.orphans);
        for (lease, ..) in &self.leases {
            orphans.end(*lease, Replied::Refused, None);
        }
    }
}

/// What a reply to an acquisition means for its lease.
fn replied(reply: Option<&Reply>) -> Replied {
    match reply {
        Some(Reply::Applied {
            outcome: Outcome::Granted { .. },
            ..
        }) => Replied::Granted,
        Some(Reply::Applied { .. } | Reply::Rejected(_)) => Replied::Refused,
        Some(Reply::Unknown(_)) | None => Replied::Unknown,
    }
}

/// The master's time in a reply. That of a release may be missing.
fn time(reply: &Reply) -> Option<StoreTime> {
    match reply {
        Reply::Applied { now, .. } => *now,
        Reply::Rejected(_) | Reply::Unknown(_) => None,
    }
}

struct InFlight<'a>(&'a AtomicUsize);

impl<'a> InFlight<'a> {
    fn new(node: &'a Master) -> Self {
        node.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(&node.in_flight)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
