//! A store of two shards, one of which has the manners that the test sets.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::clock::{Clock, ManualClock};
use leasehold::store::{
    BoxFuture, ForwardingStore, Key, MemoryStore, Reply, Request, Shard, Store,
};
use leasehold::{Error, ErrorKind};
use leasehold_core::{Instant, LeaseId, Loss, Op, Outcome, Token};

/// How long [`Manners::Slow`] takes.
pub(crate) const SLOW: Duration = Duration::from_secs(1);

/// What becomes of renewals on the bad shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manners {
    Good,
    /// They are never answered.
    Silent,
    /// They are answered after [`SLOW`].
    Slow,
    /// They are rejected at once.
    Fails,
    /// The store panics when it is asked.
    Panics,
    /// It panics when it is waited for.
    PanicsLater,
    /// It panics when it is asked for the shard.
    Nowhere,
    /// It answers as many as this.
    Short(usize),
    /// It answers more than was asked.
    TooMany,
    // The renewal of the name that ends in /0 is answered with:
    Rejected,
    Unknown,
    Gone,
    TakenOver,
    Refused,
    Granted,
    Exhausted,
}

#[derive(Debug)]
pub(crate) struct Shards {
    inner: MemoryStore,
    clock: ManualClock,
    manners: Mutex<Manners>,
    renewed: Mutex<HashMap<LeaseId, Instant>>,
}

impl Shards {
    pub(crate) fn new(inner: MemoryStore, clock: ManualClock) -> Self {
        Self {
            inner,
            clock,
            manners: Mutex::new(Manners::Good),
            renewed: Mutex::default(),
        }
    }

    pub(crate) fn set(&self, manners: Manners) {
        *lock(&self.manners) = manners;
    }

    /// When each lease was renewed last.
    pub(crate) fn renewed(&self) -> HashMap<LeaseId, Instant> {
        lock(&self.renewed).clone()
    }

    async fn apply_good(&self, batch: Vec<Request>) -> Vec<Reply> {
        let replies = self.inner.apply(batch.clone()).await;
        for (request, reply) in batch.iter().zip(&replies) {
            if let (Op::Renew { lease, .. }, Reply::Applied { outcome, .. }) = (request.op, reply)
                && *outcome == Outcome::Renewed
            {
                lock(&self.renewed).insert(lease, self.clock.now());
            }
        }
        replies
    }

    async fn apply_bad(&self, batch: Vec<Request>, manners: Manners) -> Vec<Reply> {
        match manners {
            Manners::Silent => return std::future::pending().await,
            Manners::Slow => self.clock.sleep_until(self.clock.now().after(SLOW)).await,
            Manners::Fails => return vec![Reply::Rejected(error()); batch.len()],
            Manners::PanicsLater => {
                tokio::task::yield_now().await;
                panic!("the store panics later");
            }
            _ => {}
        }
        let mut replies = self.apply_good(batch.clone()).await;
        match manners {
            Manners::Short(count) => replies.truncate(count),
            Manners::TooMany => replies.extend(replies.clone()),
            _ => {}
        }
        for (request, reply) in batch.iter().zip(&mut replies) {
            if request.key.name.as_str() == "bad/0" {
                spoil(reply, manners);
            }
        }
        replies
    }
}

fn spoil(reply: &mut Reply, manners: Manners) {
    let Reply::Applied { now, .. } = *reply else {
        return;
    };
    let outcome = match manners {
        Manners::Rejected => return *reply = Reply::Rejected(error()),
        Manners::Unknown => return *reply = Reply::Unknown(error()),
        Manners::Gone => Outcome::Lost(Loss::Gone),
        Manners::TakenOver => Outcome::Lost(Loss::TakenOver),
        Manners::Exhausted => Outcome::Exhausted,
        Manners::Refused => Outcome::Refused {
            left: SLOW,
            place: None,
        },
        Manners::Granted => Outcome::Granted {
            first: Token::new(1).unwrap(),
        },
        _ => return,
    };
    *reply = Reply::Applied { outcome, now };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn error() -> Error {
    Error::new(ErrorKind::Unreachable, "no way there")
}

fn is_bad(key: &Key) -> bool {
    key.name.as_str().starts_with("bad")
}

impl ForwardingStore for Shards {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        let renews = |request: &Request| matches!(request.op, Op::Renew { .. });
        let manners = *lock(&self.manners);
        let bad = batch.iter().any(|request| is_bad(&request.key));
        if !bad || manners == Manners::Good || !batch.iter().all(renews) {
            return Box::pin(self.apply_good(batch));
        }
        assert!(manners != Manners::Panics, "the store panics");
        Box::pin(self.apply_bad(batch, manners))
    }

    fn shard(&self, key: &Key) -> Shard {
        let nowhere = *lock(&self.manners) == Manners::Nowhere;
        assert!(!(nowhere && is_bad(key)), "no shard");
        Shard(u32::from(is_bad(key)))
    }
}

impl fmt::Display for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("shards:")
    }
}
