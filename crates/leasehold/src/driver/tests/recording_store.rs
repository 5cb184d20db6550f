//! A real store that records when renewals begin and end, and sometimes fails.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Acquire, Instant, LeaseId, Op, Ttl};
use shuttle::rand::{Rng, thread_rng};
use tokio::sync::Notify;

use super::super::active_lease::ActiveLease;
use super::a_while;
use crate::clock::Clock;
use crate::store::{BoxFuture, ForwardingStore, Key, MemoryStore, Reply, Request, Shard, Store};
use crate::{Error, ErrorKind};

#[derive(Debug)]
pub(super) struct RecordingStore {
    inner: MemoryStore,
    clock: Arc<dyn Clock>,
    faults: bool,
    // Not the model checker's: to note something is no point at which others may run.
    leases: Mutex<HashMap<LeaseId, Recorded>>,
    renewed: Notify,
}

/// The records of one lease.
#[derive(Debug, Default)]
struct Recorded {
    /// When renewals were begun.
    begun: Vec<Instant>,
    in_flight: usize,
    in_hand: bool,
    released: bool,
    wrong: Option<&'static str>,
}

impl RecordingStore {
    pub(super) fn new(clock: Arc<dyn Clock>, faults: bool) -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryStore::with_clock(Arc::clone(&clock)),
            clock,
            faults,
            leases: Mutex::default(),
            renewed: Notify::new(),
        })
    }

    fn leases(&self) -> MutexGuard<'_, HashMap<LeaseId, Recorded>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record<T>(&self, lease: LeaseId, change: impl FnOnce(&mut Recorded) -> T) -> T {
        change(self.leases().entry(lease).or_default())
    }

    /// Grants a lease immediately, past the client.
    pub(super) fn grant(&self, held: &ActiveLease) {
        let ttl = Ttl::remainder(Duration::from_secs(3_600));
        let request = held.request(Op::Acquire(Acquire::mutex(held.id, ttl)));
        let granted = shuttle::future::block_on(self.inner.apply(vec![request]));
        assert!(matches!(granted[..], [Reply::Applied { .. }]));
    }

    /// A task holds a lease.
    pub(super) fn in_hand(&self, lease: LeaseId) {
        self.record(lease, |recorded| recorded.in_hand = true);
    }

    /// The release of a lease has returned.
    pub(super) fn released(&self, lease: LeaseId) {
        self.record(lease, |recorded| {
            recorded.released = true;
            if recorded.in_flight > 0 {
                recorded.wrong = Some("a renewal was in flight after its release");
            }
        });
    }

    /// Every lease was given back: by a release, or by a drop, after which nobody waits for renewals that
    /// are under way. No other one is begun.
    pub(super) fn all_given_back(&self) {
        for recorded in self.leases().values_mut() {
            recorded.released = true;
        }
    }

    /// Waits until a renewal is begun at `since` or later.
    pub(super) async fn renewed_after(&self, lease: LeaseId, since: Instant) {
        loop {
            let renewed = self.renewed.notified();
            if self.record(lease, |recorded| recorded.begun.last() >= Some(&since)) {
                return;
            }
            renewed.await;
        }
    }

    /// Checks what was recorded. Returns the number of renewals.
    pub(super) fn check(&self) -> u64 {
        let leases = self.leases();
        for (lease, recorded) in &*leases {
            assert_eq!(recorded.wrong, None, "{lease}");
            assert!(
                recorded.in_hand || recorded.begun.is_empty(),
                "{lease} was renewed without a holder"
            );
        }
        leases
            .values()
            .map(|recorded| recorded.begun.len() as u64)
            .sum()
    }

    async fn apply_recorded(&self, batch: Vec<Request>) -> Vec<Reply> {
        let renewals: Vec<_> = batch
            .iter()
            .filter_map(|request| renewed(&request.op))
            .collect();
        for lease in &renewals {
            let now = self.clock.now();
            self.record(*lease, |recorded| {
                recorded.begun.push(now);
                recorded.in_flight += 1;
                if recorded.released {
                    recorded.wrong = Some("a renewal was begun after its release");
                }
            });
        }
        self.renewed.notify_waiters();
        let slow = !renewals.is_empty();
        let _in_flight = InFlight {
            store: self,
            renewals,
        };
        // Renewals are slow: others overtake them.
        if slow {
            a_while().await;
        }
        let replies = self.reply(batch).await;
        if slow {
            a_while().await;
        }
        replies
    }

    async fn reply(&self, batch: Vec<Request>) -> Vec<Reply> {
        let count = batch.len();
        let error = || Error::new(ErrorKind::Unreachable, "no reply");
        match thread_rng().gen_range(0..8) {
            0 if self.faults => vec![Reply::Rejected(error()); count],
            1 if self.faults => {
                self.inner.apply(batch).await;
                vec![Reply::Unknown(error()); count]
            }
            _ => self.inner.apply(batch).await,
        }
    }
}

/// Renewals in flight, until the reply comes or they are given up.
struct InFlight<'a> {
    store: &'a RecordingStore,
    renewals: Vec<LeaseId>,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        for lease in &self.renewals {
            self.store
                .record(*lease, |recorded| recorded.in_flight -= 1);
        }
    }
}

const fn renewed(op: &Op) -> Option<LeaseId> {
    match op {
        Op::Renew {
            lease, count: None, ..
        } => Some(*lease),
        _ => None,
    }
}

impl ForwardingStore for RecordingStore {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        Box::pin(self.apply_recorded(batch))
    }

    fn shard(&self, key: &Key) -> Shard {
        Shard(u32::from(key.name.as_str() == "0"))
    }
}

impl fmt::Display for RecordingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("recording:")
    }
}
