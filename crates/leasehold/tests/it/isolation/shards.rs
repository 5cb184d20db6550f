//! A store of two shards, one of which has the fault that a test sets.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::__private::store::{
    BoxFuture, ForwardingStore, Key, MemoryStore, Reply, Request, Shard, Store,
};
use leasehold::clock::{Clock, ManualClock};
use leasehold::{Error, ErrorKind};
use leasehold_core::{Instant, LeaseId, Loss, Op, Outcome, Token};

/// How long [`ShardFault::Slow`] takes.
pub(crate) const SLOW: Duration = Duration::from_secs(1);

/// What happens to renewals on the bad shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShardFault {
    None,
    /// There is no reply.
    Silent,
    /// The reply takes [`SLOW`].
    Slow,
    /// They are rejected immediately.
    Fails,
    /// The store panics in the call.
    Panics,
    /// The store panics in the future.
    PanicsLater,
    /// The store panics when it computes the shard.
    Nowhere,
    /// This many replies.
    Short(usize),
    /// More replies than requests.
    TooMany,
    // The reply to the renewal of the name that ends in /0 is:
    Rejected,
    Unknown,
    Free,
    TakenOver,
    Refused,
    Granted,
    Exhausted,
}

#[derive(Debug)]
pub(crate) struct Shards {
    inner: MemoryStore,
    clock: ManualClock,
    fault: Mutex<ShardFault>,
    renewed: Mutex<HashMap<LeaseId, Instant>>,
}

impl Shards {
    pub(crate) fn new(inner: MemoryStore, clock: ManualClock) -> Self {
        Self {
            inner,
            clock,
            fault: Mutex::new(ShardFault::None),
            renewed: Mutex::default(),
        }
    }

    pub(crate) fn set(&self, fault: ShardFault) {
        *lock(&self.fault) = fault;
    }

    /// The time of the last renewal of each lease.
    pub(crate) fn renewed(&self) -> HashMap<LeaseId, Instant> {
        lock(&self.renewed).clone()
    }

    async fn apply_good(&self, batch: Vec<Request>) -> Vec<Reply> {
        let replies = self.inner.apply(batch.clone()).await;
        for (request, reply) in batch.iter().zip(&replies) {
            if let (
                Op::Renew {
                    lease, count: None, ..
                },
                Reply::Applied { outcome, .. },
            ) = (&request.op, reply)
                && *outcome == Outcome::Kept
            {
                lock(&self.renewed).insert(*lease, self.clock.now());
            }
        }
        replies
    }

    async fn apply_bad(&self, batch: Vec<Request>, fault: ShardFault) -> Vec<Reply> {
        match fault {
            ShardFault::Silent => return std::future::pending().await,
            ShardFault::Slow => self.clock.sleep_until(self.clock.now().after(SLOW)).await,
            ShardFault::Fails => return vec![Reply::Rejected(error()); batch.len()],
            ShardFault::PanicsLater => {
                tokio::task::yield_now().await;
                panic!("the store panics later");
            }
            _ => {}
        }
        let mut replies = self.apply_good(batch.clone()).await;
        match fault {
            ShardFault::Short(count) => replies.truncate(count),
            ShardFault::TooMany => replies.extend(replies.clone()),
            _ => {}
        }
        for (request, reply) in batch.iter().zip(&mut replies) {
            if request.key.name.as_str() == "bad/0" {
                spoil(reply, fault);
            }
        }
        replies
    }
}

fn spoil(reply: &mut Reply, fault: ShardFault) {
    let Reply::Applied { now, .. } = reply else {
        return;
    };
    let outcome = match fault {
        ShardFault::Rejected => return *reply = Reply::Rejected(error()),
        ShardFault::Unknown => return *reply = Reply::Unknown(error()),
        ShardFault::Free => Outcome::Lost(Loss::Free),
        ShardFault::TakenOver => Outcome::Lost(Loss::TakenOver),
        ShardFault::Exhausted => Outcome::Exhausted,
        ShardFault::Refused => Outcome::Refused {
            time_left: Some(SLOW),
            queue_position: None,
        },
        ShardFault::Granted => Outcome::granted(Token::new(1).unwrap()),
        _ => return,
    };
    let now = *now;
    *reply = Reply::Applied { outcome, now };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn error() -> Error {
    Error::new(ErrorKind::Unreachable, "unreachable")
}

fn is_bad(key: &Key) -> bool {
    key.name.as_str().starts_with("bad")
}

impl ForwardingStore for Shards {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        let renews = |request: &Request| matches!(request.op, Op::Renew { count: None, .. });
        let fault = *lock(&self.fault);
        let bad = batch.iter().any(|request| is_bad(&request.key));
        if !bad || fault == ShardFault::None || !batch.iter().all(renews) {
            return Box::pin(self.apply_good(batch));
        }
        assert!(fault != ShardFault::Panics, "the store panics");
        Box::pin(self.apply_bad(batch, fault))
    }

    fn shard(&self, key: &Key) -> Shard {
        let nowhere = *lock(&self.fault) == ShardFault::Nowhere;
        assert!(!(nowhere && is_bad(key)), "no shard");
        Shard(u32::from(is_bad(key)))
    }
}

impl fmt::Display for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("shards:")
    }
}
