//! The Redlock store: a store over many Redis masters, of which a majority decides.
//!
//! * `master` is one of the masters, with an estimate of its clock, and its backoff while it does not reply.
//! * `broadcast` sends a batch to all of them. A `pending_request` counts the replies, by the rules of
//!   [`leasehold_core::quorum`].
//! * `admission` inspects masters that are new or may have forgotten leases, and admits them.
//! * `fan_out` calls all of them, and waits for the slowest only for a moment.
//! * `leases` has what failed acquisitions have left, and the renewals in flight: their leases are restored at masters that
//!   have forgotten them.
//! * `quorum_listener` combines the events of the masters; `read` reads the state of names at all of them.
//!
//! The masters keep no queues: a refused client is notified when a majority has changed, and tries again
//! with a new lease id.

mod admission;
mod broadcast;
mod fan_out;
mod leases;
mod master;
mod no_quorum;
mod pending_request;
mod quorum_listener;
mod read;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::quorum::Size;
use leasehold_core::{Acquire, ClientId, Op, Ttl};

use self::admission::Admission;
use self::fan_out::{WaitLimits, fan_out};
use self::leases::Leases;
use self::master::Master;
use self::no_quorum::no_quorum;
use self::quorum_listener::{MasterListener, QuorumListener};
use crate::store::api::private::Sealed;
use crate::store::api::{
    BoxFuture, Capabilities, Key, Keyspace, Listener, Listening, Page, Query, Reply, Request,
    Shard, Store, StoreKind, WakeupMode,
};
use crate::store::options::OpenOptions;
use crate::store::redis::RedisStore;
use crate::store::redis::deployment::{Deployment, Masters};
use crate::{Error, ErrorKind, Result};

/// The longest ttl that can be used, if the URL names no other.
const LONGEST_TTL: Duration = Duration::from_secs(60);

/// How many calls a client has in flight at once: fewer than at one server, as each goes to all masters.
const PARALLEL_CALLS: u64 = 2;

/// A silent master must not delay connecting to the others.
const LIMITS: WaitLimits = WaitLimits {
    majority: None,
    others: Duration::from_secs(1),
};

/// Lock records in many Redis masters, each by itself.
///
/// A lock is held if a majority of them has granted it. `2 N + 1` masters tolerate the loss of `N`.
/// Tokens increase over the majority, independently of clocks, as long as no master forgets; a master that
/// was restarted is kept out until the leases that it may have forgotten have expired. The promises and
/// their conditions are in `docs/guarantees.md`.
#[derive(Debug)]
pub(super) struct RedlockStore {
    nodes: Vec<Arc<Master>>,
    size: Size,
    longest: Ttl,
    url: String,
    admission: Arc<Admission>,
    leases: Leases,
}

impl RedlockStore {
    /// Connects to the masters that a URL names, at least to a majority of them. See
    /// [`open`](super::open()) for the URLs.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, its connections are closed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for an even number of masters or fewer than three, for two that
    /// are one server, and for one that is a replica or a node of a cluster;
    /// [`ErrorKind::NoQuorum`] if fewer than a majority can be reached; otherwise as for
    /// [`open`](super::open()).
    pub(super) async fn open(masters: Masters, options: &OpenOptions) -> Result<Self> {
        let url = Deployment::Masters(masters.clone()).to_string();
        let size = Size::new(masters.nodes.len()).map_err(|error| {
            let message = match masters.nodes.len() {
                1 => format!("the store URL names 1 master: {error}"),
                count => format!("the store URL names {count} masters: {error}"),
            };
            Error::new(ErrorKind::InvalidConfig, message)
        })?;
        let default = || Ttl::checked(LONGEST_TTL).unwrap_or(Ttl::MAX);
        let longest = masters.longest_ttl.unwrap_or_else(default);
        let node = |address| Arc::new(Master::new(RedisStore::one_of_many(address, options)));
        let nodes: Vec<_> = masters.nodes.into_iter().map(node).collect();
        let store = Self {
            admission: Arc::new(Admission::new(nodes.clone(), size, longest)),
            leases: Leases::default(),
            nodes,
            size,
            longest,
            url,
        };
        store.meet().await.map_err(|error| error.at_store(&store))?;
        Ok(store)
    }

    /// Connects to the masters, and checks that they are independent.
    async fn meet(&self) -> Result<()> {
        let met = self.nodes.iter().map(|node| node.store.meet());
        let met = fan_out(met, self.size, LIMITS).await;
        let mut errors = Vec::new();
        let mut runs = HashMap::new();
        let mut versions = BTreeSet::new();
        for (node, met) in self.nodes.iter().zip(met) {
            let invalid = |what: String| {
                Err(Error::new(
                    ErrorKind::InvalidConfig,
                    format!("{}{what}", node.store),
                ))
            };
            let silent = || Error::new(ErrorKind::Unreachable, "no reply").at_store(&node.store);
            let facts = match met.unwrap_or_else(|| Err(silent())) {
                Ok(facts) => facts,
                Err(error) if error.is_transient() => {
                    errors.push(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if let Some(master) = facts.master {
                return invalid(format!(
                    " is a replica of {master}; name masters that know nothing of each other"
                ));
            }
            if facts.cluster {
                return invalid(" is a node of a cluster; use redis+cluster:// for it".to_owned());
            }
            if let Some(other) = runs.insert(facts.run, node) {
                return invalid(format!(
                    " and {} are one and the same server; it would have two votes",
                    other.store
                ));
            }
            versions.insert(facts.version);
        }
        if runs.len() < self.size.majority() {
            return Err(no_quorum(self.size, &errors, None));
        }
        if versions.len() > 1 {
            tracing::warn!(store = %self.url, ?versions, "the masters have different versions");
        }
        for error in &errors {
            tracing::warn!(store = %self.url, %error, "a master cannot be reached");
        }
        Ok(())
    }

    async fn apply_batch(&self, batch: Vec<Request>) -> Vec<Reply> {
        let mut spaces: Vec<&Keyspace> = batch.iter().map(|request| &request.key.space).collect();
        spaces.dedup();
        for space in spaces {
            self.admission.open(space.namespace()).await;
        }
        let reject = |request| self.reject(request).map(Reply::Rejected);
        let mut replies: Vec<_> = batch.iter().map(reject).collect();
        let rounds = rounds(&batch);
        for round in 0..=rounds.iter().copied().max().unwrap_or_default() {
            let open = |place: &usize| rounds[*place] == round && replies[*place].is_none();
            let places: Vec<_> = (0..batch.len()).filter(open).collect();
            let requests = places.iter().map(|place| batch[*place].clone());
            let decided = self.broadcast(requests.collect()).await;
            for (place, reply) in places.into_iter().zip(decided) {
                replies[place] = Some(reply);
            }
        }
        replies.into_iter().flatten().collect()
    }

    /// Why a request cannot be applied.
    fn reject(&self, request: &Request) -> Option<Error> {
        // A lease that was granted may always be renewed and released.
        let Op::Acquire(Acquire { ttl, .. }) = request.op else {
            return None;
        };
        (ttl > self.longest).then(|| {
            let message = format!(
                "a ttl of {ttl} is longer than the longest that this store takes, {}; a master that \
                 was started again takes part again after that time. Set ?longest-ttl= in the store URL, the same \
                 for all programs",
                self.longest
            );
            Error::new(ErrorKind::InvalidConfig, message)
        })
    }
}

/// The round in which each request of a batch is sent, from 0. An acquisition behind a release of the same lock
/// goes into the next round. Sent together, they would leave no moment in which another client can acquire
/// the lock, as the masters keep no queue.
fn rounds(batch: &[Request]) -> Vec<usize> {
    let mut keys: HashMap<&Key, (usize, bool)> = HashMap::new();
    let round = |request: &'_ Request, (round, released): &mut (usize, bool)| {
        if *released && request.acquires() {
            *round += 1;
            *released = false;
        }
        *released |= matches!(request.op, Op::Release { rest: None, .. });
        *round
    };
    let requests = batch.iter();
    requests
        .map(|request| round(request, keys.entry(&request.key).or_default()))
        .collect()
}

impl fmt::Display for RedlockStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

impl Sealed for RedlockStore {}

impl Store for RedlockStore {
    fn capabilities(&self) -> Capabilities {
        let wakes = |node: &&Arc<Master>| node.store.capabilities().wakeup != WakeupMode::Nothing;
        let majority = self.nodes.iter().filter(wakes).count() >= self.size.majority();
        let wakeup = match majority {
            true => WakeupMode::Changes,
            false => WakeupMode::Nothing,
        };
        Capabilities {
            idempotent_acquire: false,
            parallel_calls: PARALLEL_CALLS,
            longest_ttl: self.longest,
            ..Capabilities::new(StoreKind::Masters, wakeup)
        }
    }

    fn shard(&self, _key: &Key) -> Shard {
        Shard(0)
    }

    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        Box::pin(StoreKind::Masters.apply(batch, self, |batch| self.apply_batch(batch)))
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Result<Page>> {
        Box::pin(async move {
            StoreKind::Masters.check_query(&query, self)?;
            let read = read::page(&self.nodes, self.size, &query).await;
            read.map_err(|error| match &query {
                Query::Name { key, .. } => error.for_lock(&key.name).at_store(&self.url),
                _ => error.at_store(&self.url),
            })
        })
    }

    fn listen(&self, space: &Keyspace, client: ClientId, to: Weak<dyn Listener>) -> Listening {
        let listener = Arc::new(QuorumListener::new(to, self.size));
        let nodes = self.nodes.iter().enumerate();
        let at_masters = nodes.map(|(master, node)| {
            let listener = Arc::clone(&listener);
            let at_master = Arc::new(MasterListener { listener, master });
            let to: Weak<MasterListener> = Arc::downgrade(&at_master);
            (node.store.listen(space, client, to), at_master)
        });
        let at_masters: Vec<_> = at_masters.collect();
        Listening::new(move || drop(at_masters))
    }
}
