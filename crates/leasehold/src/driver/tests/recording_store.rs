//! A real store that notes when renewals begin and end, and sometimes answers badly.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::{ClientId, Instant, LeaseId, Op, TokenCount, Ttl};
use shuttle::rand::{Rng, thread_rng};
use tokio::sync::Notify;

use super::super::lease::active_lease::ActiveLease;
use super::a_while;
use crate::clock::Clock;
use crate::store::{
    ClientInfo, BoxFuture, Entry, Key, Keyspace, Listener, MemoryStore, Reply, Request, Shard, Store,
    WakeupMode,
};
use crate::{Error, ErrorKind, Result};

#[derive(Debug)]
pub(super) struct RecordingStore {
    inner: MemoryStore,
    clock: Arc<dyn Clock>,
    faults: bool,
    // Not the model checker's: to note something is no point at which others may run.
    leases: Mutex<HashMap<LeaseId, Noted>>,
    renewed: Notify,
}

/// What is noted of one lease.
#[derive(Debug, Default)]
struct Noted {
    /// When renewals were begun.
    begun: Vec<Instant>,
    under_way: usize,
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

    fn leases(&self) -> MutexGuard<'_, HashMap<LeaseId, Noted>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note<T>(&self, lease: LeaseId, note: impl FnOnce(&mut Noted) -> T) -> T {
        note(self.leases().entry(lease).or_default())
    }

    /// Grants a lease at once, past the client.
    pub(super) fn grant(&self, held: &ActiveLease) {
        let request = held.request(Op::Acquire {
            lease: held.id,
            count: NonZeroU32::MIN,
            ttl: Ttl::remainder(Duration::from_secs(3_600)),
            tokens: TokenCount::MIN,
            wait: false,
        });
        let granted = shuttle::future::block_on(self.inner.apply(vec![request]));
        assert!(matches!(granted[..], [Reply::Applied { .. }]));
    }

    /// Somebody has a lease in hand.
    pub(super) fn in_hand(&self, lease: LeaseId) {
        self.note(lease, |noted| noted.in_hand = true);
    }

    /// The release of a lease has returned.
    pub(super) fn released(&self, lease: LeaseId) {
        self.note(lease, |noted| {
            noted.released = true;
            if noted.under_way > 0 {
                noted.wrong = Some("a renewal was under way after its release");
            }
        });
    }

    /// Every lease was given back: by a release, or by a drop, after which nobody waits for renewals that
    /// are under way. None is begun any more.
    pub(super) fn all_given_back(&self) {
        for noted in self.leases().values_mut() {
            noted.released = true;
        }
    }

    /// Waits until a renewal is begun at `since` or later.
    pub(super) async fn renewed_after(&self, lease: LeaseId, since: Instant) {
        loop {
            let renewed = self.renewed.notified();
            if self.note(lease, |noted| noted.begun.last() >= Some(&since)) {
                return;
            }
            renewed.await;
        }
    }

    /// Checks what was noted. Answers how many renewals there were.
    pub(super) fn check(&self) -> u64 {
        let leases = self.leases();
        for (lease, noted) in &*leases {
            assert_eq!(noted.wrong, None, "{lease}");
            assert!(
                noted.in_hand || noted.begun.is_empty(),
                "{lease} was renewed for nobody"
            );
        }
        leases.values().map(|noted| noted.begun.len() as u64).sum()
    }

    async fn apply_noted(&self, batch: Vec<Request>) -> Vec<Reply> {
        let renewals: Vec<_> = batch
            .iter()
            .filter_map(|request| renewed(request.op))
            .collect();
        for lease in &renewals {
            let now = self.clock.now();
            self.note(*lease, |noted| {
                noted.begun.push(now);
                noted.under_way += 1;
                if noted.released {
                    noted.wrong = Some("a renewal was begun after its release");
                }
            });
        }
        self.renewed.notify_waiters();
        let slow = !renewals.is_empty();
        let _under_way = UnderWay {
            store: self,
            renewals,
        };
        // Renewals are slow: others overtake them.
        if slow {
            a_while().await;
        }
        let replies = self.answer(batch).await;
        if slow {
            a_while().await;
        }
        replies
    }

    async fn answer(&self, batch: Vec<Request>) -> Vec<Reply> {
        let count = batch.len();
        let error = || Error::new(ErrorKind::Unreachable, "no answer");
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

/// Renewals that are under way, until they are answered or given up.
struct UnderWay<'a> {
    store: &'a RecordingStore,
    renewals: Vec<LeaseId>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        for lease in &self.renewals {
            self.store.note(*lease, |noted| noted.under_way -= 1);
        }
    }
}

fn renewed(op: Op) -> Option<LeaseId> {
    match op {
        Op::Renew { lease, .. } => Some(lease),
        _ => None,
    }
}

impl Store for RecordingStore {
    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        Box::pin(self.apply_noted(batch))
    }

    fn shard(&self, key: &Key) -> Shard {
        Shard(u32::from(key.name.as_str() == "0"))
    }

    fn listen(&self, space: &Keyspace, client: ClientId, listener: Weak<dyn Listener>) {
        self.inner.listen(space, client, listener);
    }

    fn forget(&self, client: ClientId) {
        self.inner.forget(client);
    }

    fn wakeup_mode(&self) -> WakeupMode {
        self.inner.wakeup_mode()
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Entry>>> {
        self.inner.inspect(key)
    }

    fn list<'a>(&'a self, space: &'a Keyspace) -> BoxFuture<'a, Result<Vec<Entry>>> {
        self.inner.list(space)
    }

    fn announce<'a>(
        &'a self,
        space: &'a Keyspace,
        client: ClientId,
        about: &'a ClientInfo,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        self.inner.announce(space, client, about, ttl)
    }
}

impl fmt::Display for RecordingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("noting:")
    }
}
