//! The Redis store: a single server over TCP, TLS or a unix socket, the master that sentinels name, or a cluster.
//!
//! The way of a batch: [`RedisStore::apply`] splits it into parts of one script each; `topology` makes the calls of a
//! part, over the connections in `link`; `wire` writes their arguments and reads their replies.
//!
//! * `wire/` is what travels: keys, scripts, arguments and replies.
//! * `address/` are the URLs of servers.
//! * `link/` are the connections and what they push.
//! * `topology/` are the servers: one, the one that sentinels name, or the nodes of a cluster.
//! * `read/` reads the state of names and clients.
//! * `replicas` waits for acknowledgements of replicas.
//! * `master` is a server that is one of many masters.
//! * `diagnose` collects facts for [`doctor`](crate::doctor).
//! * `errors` describes the errors of a server.

mod address;
#[cfg(feature = "doctor")]
mod diagnose;
pub(super) mod errors;
#[cfg(any(test, feature = "__fuzz"))]
pub(crate) mod fuzzing;
mod link;
pub(super) mod master;
mod read;
mod replicas;
mod resent;
mod shared_names;
mod topology;
mod wire;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::{ClientId, LeaseId, Op, Outcome};
use redis::{Value, cmd};
use tokio::time::{Instant, sleep};

pub(super) use self::address::deployment;
use self::address::deployment::Deployment;
#[cfg(feature = "doctor")]
pub(super) use self::diagnose::diagnose;
use self::link::connect::{self, Role};
use self::link::connection_manager::{ConnectionManager, Target};
use self::replicas::Replicas;
use self::resent::{Resent, split_part};
use self::shared_names::SharedNames;
use self::topology::Topology;
use self::topology::call::{Call, CallResult, CallResults, Positioned};
use self::topology::cluster::Cluster;
use self::topology::node::Node;
use self::topology::waits::Waits;
use self::wire::decode::{Decoded, Remark};
use self::wire::reply::text;
pub use self::wire::script::Script;
use crate::store::api::private::Sealed;
use crate::store::api::{
    BoxFuture, Capabilities, Key, Keyspace, Listener, Listening, Page, Query, Reply, Request,
    Shard, Store, mismatch,
};
use crate::store::options::OpenOptions;
use crate::{Error, ErrorKind, Result};

/// How many calls a client has in flight at once: the server processes some while the client processes the replies to
/// another one. With more, each call has fewer operations, and an operation costs more of the server's time.
///
/// The nodes of a cluster work side by side already, and a call has the operations of one slot.
const PARALLEL_CALLS: u64 = 4;

/// The retry interval of an operation in a slot that is being migrated.
const MIGRATION_INTERVAL: Duration = Duration::from_millis(5);

/// Lock records in Redis.
///
/// It connects when it is opened and again, on the next call, whenever a connection broke. It
/// never sends anything twice that may have been applied.
#[derive(Debug)]
pub struct RedisStore {
    url: String,
    topology: Arc<Topology>,
    /// Those of a single server.
    replicas: Option<Replicas>,
    /// Whether the server lacks a command of the script for renewals, or the user a permission.
    without_renewals: AtomicBool,
    shared_names: SharedNames,
    response_timeout: Duration,
}

impl RedisStore {
    /// Connects to the servers that a URL names, for programs that want this store and no other.
    /// See [`open`](super::open()) for the URLs.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, its connections are closed.
    ///
    /// # Errors
    ///
    /// As for [`open`](super::open()).
    pub async fn open(url: &str, options: &OpenOptions) -> Result<Self> {
        Self::connect(Deployment::of(url, options)?, options).await
    }

    /// Connects to a deployment.
    pub(super) async fn connect(deployment: Deployment, options: &OpenOptions) -> Result<Self> {
        let url = deployment.to_string();
        let one = |target: Target| {
            Topology::One(Arc::new(Node::new(ConnectionManager::new(target, options))))
        };
        let topology = match deployment {
            Deployment::Single(address) => one(Target::Fixed(address)),
            Deployment::Sentinel(set) => one(Target::Found(set)),
            Deployment::Cluster(seeds) => {
                Topology::Cluster(Arc::new(Cluster::new(seeds, options.clone())))
            }
            Deployment::Masters(_) => {
                let message = "this URL names many masters, and not one store";
                return Err(Error::new(ErrorKind::Unsupported, message).at_store(url));
            }
        };
        let store = Self::new(url, topology, options);
        store.greet().await?;
        Ok(store)
    }

    /// Connects on first use.
    fn new(url: String, topology: Topology, options: &OpenOptions) -> Self {
        let replicas = match &topology {
            Topology::One(node) => Some(Replicas::of(node, options)),
            Topology::Cluster(_) => None,
        };
        Self {
            url,
            topology: Arc::new(topology),
            replicas,
            without_renewals: AtomicBool::new(false),
            shared_names: SharedNames::default(),
            response_timeout: options.response_timeout,
        }
    }

    /// Proves that the servers respond, accept us and can run the rule.
    async fn greet(&self) -> Result<()> {
        let greeted = match &*self.topology {
            Topology::One(node) => greet_server(node).await,
            Topology::Cluster(cluster) => cluster.greet().await,
        };
        greeted.map_err(|error| error.at_store(self))
    }

    async fn apply_batch(&self, batch: Vec<Request>) -> Vec<Reply> {
        let keys: Vec<_> = batch.iter().map(|request| request.key.clone()).collect();
        let _own_changes = self.topology.clients().observers.own_changes(&keys);
        let requests = batch.into_iter().enumerate();
        let (replicated, plain): (Vec<_>, Vec<_>) =
            requests.partition(|(_, request)| request.durability.is_replicated());
        let replied = if replicated.is_empty() {
            self.apply_parts(plain, None).await
        } else {
            // In a box: every call would have the size of this one.
            let both = Box::pin(async {
                tokio::join!(
                    self.apply_replicated(replicated),
                    self.apply_parts(plain, None)
                )
            });
            let (replicated, plain) = both.await;
            replicated.into_iter().chain(plain).collect()
        };
        let mut replies = vec![None; keys.len()];
        for (position, reply) in replied {
            replies[position] = Some(reply);
        }
        // A request whose reply is missing may have been applied.
        let unknown = || Reply::Unknown(errors::invalid_reply());
        let replies = replies.into_iter();
        replies.map(|reply| reply.unwrap_or_else(unknown)).collect()
    }

    /// Applies requests whose grants and renewals take effect once replicas have acknowledged them.
    async fn apply_replicated(&self, positioned: Positioned) -> Vec<(usize, Reply)> {
        let (Some(replicas), Topology::One(node)) = (&self.replicas, &*self.topology) else {
            return Vec::new();
        };
        let requests: Vec<_> = positioned.iter().map(|(_, it)| it.clone()).collect();
        let mut ready = replicas.count_for(&requests).await;
        // A waiter is notified over the main connection.
        if ready.is_ok() && requests.iter().any(Request::acquires) {
            ready = node.manager.session(Duration::ZERO, true).await.map(drop);
        }
        if let Err(error) = ready {
            let rejected = |(position, _)| (position, Reply::Rejected(error.clone()));
            return positioned.into_iter().map(rejected).collect();
        }
        let _turn = replicas.turn.lock().await;
        let mut waits = replicas.waits(&requests);
        let replicated = Some((&replicas.node, &mut waits));
        self.apply_parts(positioned, replicated).await
    }

    /// Applies requests in parts, each of one script. Requests for a name are applied in order, so a part is sent after the
    /// replies to the one before.
    async fn apply_parts(
        &self,
        mut requests: Positioned,
        mut replicated: Option<(&Node, &mut Waits)>,
    ) -> Vec<(usize, Reply)> {
        let mut replies = Vec::with_capacity(requests.len());
        let is_renewal =
            |(_, request): &(_, Request)| matches!(request.op, Op::Renew { count: None, .. });
        let mut all_renewals = requests.iter().all(is_renewal);
        // The renewals that their script has not applied.
        let mut for_rule = Vec::new();
        let mut resent = Resent::default();
        let mut start = None;
        while let Some((_, first)) = requests.first() {
            let is_fast = all_renewals && !self.without_renewals.load(Ordering::Relaxed);
            let script = |(position, request): &(usize, Request)| match self
                .shared_names
                .script(request, resent.scripts.get(position))
            {
                Some(Script::Mutex) if is_fast => Some(Script::Renew),
                Some(Script::Shares) if is_fast => Some(Script::RenewShares),
                script => script,
            };
            if let (Topology::Cluster(cluster), Op::Describe { .. }) = (&*self.topology, &first.op)
            {
                cluster.settle().await;
            }
            let (of_part, rest) = split_part(&mut requests, script);
            let calls = Call::group(of_part, requests, self.topology.slot());
            let results = match &mut replicated {
                Some((node, waits)) => node.call(calls, Some(waits)).await,
                None => self.topology.call(calls).await,
            };
            resent.is_redirected = false;
            requests = self.collect(results, replicated.as_ref(), &mut resent, &mut replies);
            if of_part.is_some_and(Script::is_fast) {
                for_rule.append(&mut requests);
            } else if requests.is_empty() {
                start = None;
            } else if start.get_or_insert_with(Instant::now).elapsed() >= self.response_timeout / 4
            {
                let moving = |(position, _)| (position, Reply::Rejected(errors::slot_is_moving()));
                replies.extend(requests.drain(..).map(moving));
                start = None;
            } else if !resent.is_redirected {
                sleep(MIGRATION_INTERVAL).await;
            }
            requests.extend(rest);
            if requests.is_empty() {
                all_renewals = false;
                requests.append(&mut for_rule);
            }
        }
        replies
    }

    /// Adds the replies to calls. Returns the requests that were certainly not applied and are sent again.
    ///
    /// An operation on a name that is a lock of another kind, which may have waiters to be served, is sent again once, behind
    /// one that serves them: what is free is granted to the first living ones, and without one the name may be free. One on
    /// a record of another script is sent to that.
    fn collect(
        &self,
        results: CallResults,
        replicated: Option<&(&Node, &mut Waits)>,
        resent: &mut Resent,
        replies: &mut Vec<(usize, Reply)>,
    ) -> Positioned {
        let (mut open, mut serving) = (Vec::new(), Vec::new());
        for (call, result) in results {
            let decoded = match result {
                CallResult::NotApplied(error) => {
                    vec![Decoded::from(Reply::Rejected(error)); call.positions.len()]
                }
                CallResult::NoReply(error) => {
                    vec![Decoded::from(Reply::Unknown(error)); call.positions.len()]
                }
                CallResult::Replied(value, session) => {
                    self.note_renewals(&call, &value);
                    let mut decoded = call.decode(&value);
                    self.shared_names.note(&call, &decoded);
                    if let Some((_, waits)) = replicated {
                        waits.check(&call.requests, &mut decoded);
                    }
                    session.finish(&call.requests, &mut decoded);
                    decoded
                }
            };
            let script = call.script();
            let positioned = call.positions.into_iter().zip(call.requests);
            for ((position, request), Decoded { reply, remark }) in positioned.zip(decoded) {
                match reply {
                    Some(_)
                        if remark == Some(Remark::WaitedFor) && resent.served.insert(position) =>
                    {
                        let serve = Request::new(request.key.clone(), Op::release(NOBODY));
                        if !serving.iter().any(|(_, other)| *other == serve) {
                            // The reply to the request replaces that to this release.
                            serving.push((position, serve));
                        }
                        open.push((position, request));
                    }
                    None => {
                        if remark == Some(Remark::Elsewhere) {
                            resent.redirect(position, script);
                        }
                        open.push((position, request));
                    }
                    Some(reply) => {
                        replies.push((position, conflict(reply)));
                    }
                }
            }
        }
        open.sort_unstable_by_key(|(position, _)| *position);
        serving.append(&mut open);
        serving
    }

    /// Leaves renewals to the rule if their script was refused for more than a moment.
    fn note_renewals(&self, call: &Call, value: &Value) {
        if let (true, Value::Array(words)) = (call.script().is_some_and(Script::is_fast), value)
            && let [Value::BulkString(_), error] = &words[..]
            && text(error).is_some_and(|error| errors::is_lasting(&error))
            && !self.without_renewals.swap(true, Ordering::Relaxed)
        {
            tracing::debug!(reply = ?value, "renewals use the rule");
        }
    }
}

/// A lease that never holds and never waits. Its release serves the waiters.
const NOBODY: LeaseId = LeaseId {
    client: ClientId::from_random([0; 16]),
    number: 0,
};

/// Proves that a server responds, accepts us, can run the rule and is no node of a cluster.
async fn greet_server(node: &Node) -> Result<()> {
    if let Err(error) = node.greet().await {
        let role = |mut connection| async move { Ok(connect::role(&mut connection).await) };
        if error.kind() == ErrorKind::Unsupported
            && let Ok(Some(Role::Sentinel(masters))) =
                node.manager.exchange(Duration::ZERO, role).await
        {
            return Err(errors::sentinel(&masters));
        }
        return Err(error);
    }
    // Every user may send HELLO. A server before 6.0 does not know it; one that does not reply now
    // fails at the first request.
    match node.manager.query(Duration::ZERO, cmd("HELLO")).await {
        Ok(hello) if connect::is_cluster_node(&hello) => Err(errors::cluster_without_its_name()),
        _ => Ok(()),
    }
}

/// The reply for a name that is used otherwise: a conflict. Nothing was applied.
fn conflict(reply: Reply) -> Reply {
    match reply.outcome() {
        Ok(Outcome::Mismatch(found)) => Reply::Rejected(mismatch(*found)),
        _ => reply,
    }
}

impl fmt::Display for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

impl Sealed for RedisStore {}

#[doc(hidden)]
impl Store for RedisStore {
    fn capabilities(&self) -> Capabilities {
        let kind = self.topology.kind();
        Capabilities {
            parallel_calls: match &*self.topology {
                Topology::One(_) => PARALLEL_CALLS,
                Topology::Cluster(_) => 1,
            },
            ..Capabilities::new(kind, self.topology.wakeup_mode())
        }
    }

    fn shard(&self, key: &Key) -> Shard {
        self.topology.shard(key)
    }

    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        let kind = self.topology.kind();
        Box::pin(kind.apply(batch, self, |batch| self.apply_batch(batch)))
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Result<Page>> {
        Box::pin(async move {
            self.topology.kind().check_query(&query, self)?;
            let page = self.page(query).await;
            page.map_err(|error| error.at_store(self))
        })
    }

    fn listen(&self, space: &Keyspace, client: ClientId, to: Weak<dyn Listener>) -> Listening {
        self.topology.listen(space, client, to)
    }
}
