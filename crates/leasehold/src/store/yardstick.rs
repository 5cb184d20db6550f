//! What a store does without this library around it: the yardstick of `leasehold bench`.

use std::num::NonZeroU32;
use std::ops::Add;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold_core::{ClientId, LeaseId, Op, Outcome, TokenCount, Ttl};

#[cfg(feature = "sqlite")]
use super::SqliteStore;
use super::{Key, MemoryStore, OpenOptions, Reply, Request, Store};
#[cfg(feature = "redis")]
use super::{RedisStore, RedlockStore, redis};
use crate::{Error, ErrorKind, Mutex, Result};

/// An open store, for a client and for bare calls beside it.
#[derive(Debug)]
pub struct Yardstick {
    kind: Kind,
    /// Bare calls that the store does not count itself.
    bare_calls: AtomicU64,
    lanes: AtomicU64,
}

#[derive(Debug)]
enum Kind {
    Memory(Arc<MemoryStore>),
    #[cfg(feature = "redis")]
    Redis(Arc<RedisStore>, redis::Bare),
    #[cfg(feature = "redis")]
    Cluster(Arc<redis::ClusterStore>),
    #[cfg(feature = "redis")]
    Redlock(Arc<RedlockStore>),
    #[cfg(feature = "sqlite")]
    Sqlite(Arc<SqliteStore>),
}

impl Yardstick {
    /// Opens the store that a URL names. See [`open`](super::open) for the URLs.
    ///
    /// # Errors
    ///
    /// As [`open`](super::open).
    pub async fn open(url: &str, options: &OpenOptions) -> Result<Self> {
        let kind = match url.split_once(':').map_or("", |(scheme, _)| scheme) {
            #[cfg(feature = "redis")]
            "redis" | "rediss" | "redis+unix" => {
                let store = RedisStore::open(url, options).await?;
                let bare = store.bare().await?;
                Kind::Redis(Arc::new(store), bare)
            }
            #[cfg(feature = "redis")]
            "redis+cluster" | "rediss+cluster" => {
                let store = redis::ClusterStore::open(url, options).await?;
                Kind::Cluster(Arc::new(store))
            }
            #[cfg(feature = "redis")]
            "redlock" | "redlocks" => {
                let store = RedlockStore::open(url, options).await?;
                Kind::Redlock(Arc::new(store))
            }
            #[cfg(feature = "sqlite")]
            "sqlite" => Kind::Sqlite(Arc::new(SqliteStore::open(url, options).await?)),
            "memory" => Kind::Memory(Arc::new(MemoryStore::open(url)?)),
            _ => {
                // It says what is wrong with the URL.
                let store = super::open(url, options).await?;
                let message = format!("{store} cannot be measured");
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
        };
        Ok(Self {
            kind,
            bare_calls: AtomicU64::new(0),
            lanes: AtomicU64::new(1),
        })
    }

    /// The store, to build a client on.
    #[must_use]
    pub fn store(&self) -> Arc<dyn Store> {
        match &self.kind {
            Kind::Memory(store) => Arc::<MemoryStore>::clone(store),
            #[cfg(feature = "redis")]
            Kind::Redis(store, _) => Arc::<RedisStore>::clone(store),
            #[cfg(feature = "redis")]
            Kind::Cluster(store) => Arc::<redis::ClusterStore>::clone(store),
            #[cfg(feature = "redis")]
            Kind::Redlock(store) => Arc::<RedlockStore>::clone(store),
            #[cfg(feature = "sqlite")]
            Kind::Sqlite(store) => Arc::<SqliteStore>::clone(store),
        }
    }

    /// How many script calls or transactions there were. `None`: the store has nothing of the kind.
    #[must_use]
    pub fn calls(&self) -> Option<u64> {
        let counted: Option<u64> = match &self.kind {
            Kind::Memory(_) => None,
            #[cfg(feature = "redis")]
            Kind::Redis(store, _) => Some(store.calls()),
            #[cfg(feature = "redis")]
            Kind::Cluster(store) => Some(store.calls()),
            #[cfg(feature = "redis")]
            Kind::Redlock(store) => Some(store.calls()),
            #[cfg(feature = "sqlite")]
            Kind::Sqlite(store) => Some(store.transactions()),
        };
        counted.map(|counted| counted + self.bare_calls.load(Ordering::Relaxed))
    }

    /// How long the server takes to answer when it has nothing to do. `None`: there is no server.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub async fn ping(&self) -> Result<Option<Duration>> {
        match &self.kind {
            #[cfg(feature = "redis")]
            Kind::Redis(_, bare) => bare.ping().await.map(Some),
            _ => Ok(None),
        }
    }

    /// What the server has done so far, for whomever. `None`: there is no server, or it does not
    /// tell us.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub async fn load(&self) -> Result<Option<Load>> {
        match &self.kind {
            #[cfg(feature = "redis")]
            Kind::Redis(_, bare) => bare.load().await,
            _ => Ok(None),
        }
    }

    /// Renews leases for `ttl`, each in a call of its own, all of them sent before the first answer:
    /// what a program does that knows nothing of batches. Answers how many of them were held; `None`
    /// if there is no server whose work could be looked at, and nothing was done.
    ///
    /// # Errors
    ///
    /// If the store does not answer, or not that.
    #[cfg_attr(not(feature = "redis"), allow(unused_variables))]
    pub async fn renew_each(
        &self,
        leases: &[(Mutex, LeaseId)],
        ttl: Duration,
    ) -> Result<Option<usize>> {
        match &self.kind {
            #[cfg(feature = "redis")]
            Kind::Redis(store, bare) => {
                let ttl = Ttl::remainder(ttl);
                let requests = leases.iter().map(|(mutex, lease)| Request {
                    key: mutex.key().clone(),
                    op: Op::Renew { lease: *lease, ttl },
                    durability: crate::Durability::None,
                });
                let requests: Vec<_> = requests.collect();
                let renewed = store.renew_each(bare, &requests).await?;
                let calls = u64::try_from(leases.len()).unwrap_or(u64::MAX);
                self.bare_calls.fetch_add(calls, Ordering::Relaxed);
                Ok(Some(renewed))
            }
            _ => Ok(None),
        }
    }

    /// Removes what the store would keep for a while about free locks that nobody will ever use
    /// again, as far as it can and may.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    #[cfg_attr(not(feature = "redis"), allow(unused_variables))]
    pub async fn forget(&self, mutexes: &[Mutex]) -> Result<()> {
        match &self.kind {
            #[cfg(feature = "redis")]
            Kind::Redis(_, bare) => {
                let keys = mutexes.iter().map(|mutex| mutex.key().clone());
                bare.forget(&keys.collect::<Vec<_>>()).await
            }
            _ => Ok(()),
        }
    }

    /// Bare calls about the lock of a mutex.
    #[must_use]
    pub fn lane(self: &Arc<Self>, mutex: &Mutex) -> Lane {
        let lane = self.lanes.fetch_add(1, Ordering::Relaxed);
        Lane {
            key: mutex.key().clone(),
            #[cfg(feature = "redis")]
            record: redis::record_key(mutex.key()),
            lease: LeaseId {
                client: ClientId::from_random(u128::from(lane).to_be_bytes()),
                number: 0,
            },
            taken: false,
            yardstick: Arc::clone(self),
        }
    }
}

/// What a server has done since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// The processor time it used, its own and the kernel's on its behalf.
    pub cpu: Duration,
    /// How many scripts it ran.
    pub script_calls: u64,
    /// How long they ran, without reading and writing sockets.
    pub script_time: Duration,
}

impl Load {
    /// What was done since an earlier look. Nothing where somebody reset its counters.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            script_calls: self.script_calls.saturating_sub(earlier.script_calls),
            script_time: self.script_time.saturating_sub(earlier.script_time),
        }
    }
}

impl Add for Load {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            script_calls: self.script_calls + other.script_calls,
            script_time: self.script_time + other.script_time,
        }
    }
}

/// Bare calls about one lock, one after the other.
#[derive(Debug)]
pub struct Lane {
    yardstick: Arc<Yardstick>,
    key: Key,
    #[cfg(feature = "redis")]
    record: String,
    lease: LeaseId,
    /// Whether the first half of a pair was done, and not the second.
    taken: bool,
}

impl Lane {
    /// Acquires and releases once, each in a call of its own.
    ///
    /// # Errors
    ///
    /// If the store does not grant and release it.
    pub async fn pair(&mut self) -> Result<()> {
        self.lease.number += 1;
        match &self.yardstick.kind {
            Kind::Memory(store) => pair_by_apply(&**store, &self.key, self.lease).await,
            #[cfg(feature = "redis")]
            Kind::Cluster(store) => pair_by_apply(&**store, &self.key, self.lease).await,
            #[cfg(feature = "redis")]
            Kind::Redlock(store) => pair_by_apply(&**store, &self.key, self.lease).await,
            #[cfg(feature = "redis")]
            Kind::Redis(_, bare) => {
                bare.pair(&self.record, &self.lease.to_string()).await?;
                self.yardstick.bare_calls.fetch_add(2, Ordering::Relaxed);
                Ok(())
            }
            #[cfg(feature = "sqlite")]
            Kind::Sqlite(store) => store.bare_pair(&self.key, self.lease).await,
        }
    }

    /// Half a pair, and how long it took: acquires, and releases when it is called again. Where a
    /// pair takes one way to the store, it does the whole of it and tells half the time.
    ///
    /// # Errors
    ///
    /// As [`Lane::pair`].
    pub async fn half(&mut self) -> Result<Duration> {
        #[cfg(feature = "redis")]
        if let Kind::Redis(_, bare) = &self.yardstick.kind {
            if !self.taken {
                self.lease.number += 1;
            }
            let lease = self.lease.to_string();
            let time = bare.half(&self.record, &lease, self.taken).await?;
            self.yardstick.bare_calls.fetch_add(1, Ordering::Relaxed);
            self.taken = !self.taken;
            return Ok(time);
        }
        let start = Instant::now();
        self.pair().await?;
        Ok(start.elapsed() / 2)
    }

    /// Does the second half of a pair whose first was done.
    ///
    /// # Errors
    ///
    /// As [`Lane::pair`].
    pub async fn close(mut self) -> Result<()> {
        if self.taken {
            self.half().await?;
        }
        Ok(())
    }
}

/// What a bare pair asks for: the lock, and its release.
pub(super) fn pair(lease: LeaseId) -> [Op; 2] {
    let ttl = Ttl::remainder(Duration::from_secs(30));
    let acquire = Op::Acquire {
        lease,
        count: NonZeroU32::MIN,
        ttl,
        tokens: TokenCount::MIN,
        wait: false,
    };
    let release = Op::Release {
        lease,
        count: 0,
        ttl,
    };
    [acquire, release]
}

async fn pair_by_apply(store: &dyn Store, key: &Key, lease: LeaseId) -> Result<()> {
    for op in pair(lease) {
        let key = key.clone();
        let mut replies = store
            .apply(vec![Request {
                key,
                op,
                durability: crate::Durability::None,
            }])
            .await;
        let Some(Reply::Applied {
            outcome: Outcome::Granted { .. } | Outcome::Released { .. },
            ..
        }) = replies.pop()
        else {
            return Err(Error::new(ErrorKind::Store, "a bare call was refused"));
        };
    }
    Ok(())
}
