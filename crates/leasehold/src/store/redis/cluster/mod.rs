//! The store of a Redis cluster: its masters, each of which has a part of the slots.
//!
//! * `slot_map` is the owner of each slot.
//! * `topology` keeps the slot map, the nodes and the clients.
//! * `node` is one of the nodes, with an address, a connection and scripts of its own.
//! * `call` is a call to a node, with keys of one slot. `router` routes calls, and `send` sends them.
//!
//! The routing is not that of the client library, which repeats requests that may have been applied.

mod call;
mod node;
mod router;
mod send;
mod slot_map;
mod topology;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{ClientId, Op, Outcome};
use redis::Value;
use tokio::time::Instant;

use self::call::{Call, Work};
use self::router::CallResult;
#[cfg(any(test, feature = "__fuzz"))]
pub(super) use self::slot_map::check_slots;
use self::topology::Topology;
use super::address::Address;
use super::beside::{self, is_of_rule};
use super::deployment::Deployment;
use super::errors;
use super::observers::ServerObservers;
use super::read;
use super::reader::{KeyedCommand, Reader, TrackingReader};
use super::script::{FastPath, REQUESTS_MAX};
use crate::store::api::private::Sealed;
use crate::store::api::{
    BoxFuture, Capabilities, Event, Key, Keyspace, Listener, Listening, Page, Query, Reply,
    Request, Shard, Store, StoreKind,
};
use crate::store::options::OpenOptions;
use crate::{Error, ErrorKind, Result};

/// The interval of checks of a cluster that is not ready.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The retry interval of an operation in a slot that is being migrated.
const MIGRATION_INTERVAL: Duration = Duration::from_millis(5);

/// Lock records in a Redis cluster.
///
/// It connects to its masters when it is opened, and again, on the next call, whenever a connection
/// broke. It never sends anything twice that may have been applied.
#[derive(Debug)]
pub(in crate::store) struct ClusterStore {
    seeds: Deployment,
    topology: Arc<Topology>,
    fast_path: FastPath,
}

impl ClusterStore {
    /// Connects to the cluster that any of these nodes belongs to.
    pub(in crate::store) async fn open(seeds: Vec<Address>, options: &OpenOptions) -> Result<Self> {
        let store = Self {
            seeds: Deployment::Cluster(seeds.clone()),
            topology: Arc::new(Topology::new(seeds, options.clone())),
            fast_path: FastPath::default(),
        };
        let named = |error: Error| error.at_store(&store);
        store.topology.discover().await.map_err(named)?;
        store.greet().await.map_err(named)?;
        Ok(store)
    }

    /// Proves that all slots are served and that all masters accept us. A master that fails may be replaced
    /// within the connect timeout.
    async fn greet(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            let map = self.topology.map();
            let greetings = map.nodes().iter().map(|node| node.greet());
            let greeted = join_all(greetings).await;
            let greeted = greeted.into_iter().zip(map.nodes());
            let failed = greeted
                .filter_map(|(greeted, node)| Some(greeted.err()?.at_store(node.manager.target())));
            let error = match (map.uncovered(), failed.last()) {
                (0, None) => return Ok(()),
                (0, Some(error)) => error,
                (uncovered, _) => return Err(errors::slots_without_node(uncovered)),
            };
            let in_time = start.elapsed() < self.topology.options().connect_timeout;
            if error.kind() != ErrorKind::Unreachable || !in_time {
                return Err(error);
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
            self.topology.refresh(None).await;
        }
    }

    async fn apply_batch(&self, batch: Vec<Request>) -> Vec<Reply> {
        if batch
            .iter()
            .any(|request| matches!(request.op, Op::Describe { .. }))
        {
            self.settle_all().await;
        }
        if !batch.iter().all(|request| is_of_rule(&request.op)) {
            let observers = self.topology.observers();
            return beside::apply_each(self, self, observers, |error| error, batch).await;
        }
        let keys: Vec<_> = batch.iter().map(|request| request.key.clone()).collect();
        let _own_changes = self.topology.observers().own_changes(keys.iter());
        let mut replies: Vec<Option<Reply>> = vec![None; batch.len()];
        let mut open: Vec<_> = batch.into_iter().enumerate().collect();
        if self
            .fast_path
            .suits(open.iter().map(|(_, request)| request))
        {
            open = self.apply(Call::renewals(open), &mut replies).await;
        }
        // Requests for a name are applied in order, so a part is sent after the replies to the one before.
        while !open.is_empty() {
            let rest = open.split_off(open.len().min(REQUESTS_MAX));
            self.apply_by_rule(open, &mut replies).await;
            open = rest;
        }
        let unknown = || Reply::Unknown(errors::invalid_reply());
        let replies = replies.into_iter().zip(&keys);
        replies
            .map(|(reply, key)| {
                let reply = reply.unwrap_or_else(unknown);
                reply.map_error(|error| error.for_lock(&key.name).at_store(self))
            })
            .collect()
    }

    /// Subscribes at all nodes, those that were added included: a client describes itself from time to time.
    async fn settle_all(&self) {
        self.topology.refresh(None).await;
        let map = self.topology.map();
        let nodes = map.nodes().iter();
        let settled = nodes.map(|node| node.manager.settled(Duration::ZERO));
        drop(join_all(settled).await);
    }

    /// Executes commands, and returns a result for each.
    async fn execute(
        &self,
        commands: Vec<KeyedCommand>,
        tracked: bool,
    ) -> Result<Vec<CommandResult>> {
        let mut results = vec![CommandResult::default(); commands.len()];
        let calls = commands.into_iter().enumerate();
        let calls = calls.map(|(position, (key, cmd))| Call {
            tracked,
            ..Call::plain(&key, cmd, position)
        });
        for (call, result) in router::route(&self.topology, calls.collect()).await {
            match result {
                CallResult::Replied(reply, session) => {
                    let position = call.positions.first();
                    if let Some(slot) = position.and_then(|at| results.get_mut(*at)) {
                        *slot = CommandResult {
                            reply,
                            session: session.id,
                            tracked: call.tracked && session.subscriptions.tracks(),
                        };
                    }
                }
                CallResult::NotApplied(error) | CallResult::NoReply(error) => {
                    return Err(self.name_error(error));
                }
            }
        }
        Ok(results)
    }

    /// Applies operations by the rule, and for a while repeats those in a slot that is being migrated.
    async fn apply_by_rule(
        &self,
        positioned: Vec<(usize, Request)>,
        replies: &mut [Option<Reply>],
    ) {
        let (start, limit) = (Instant::now(), self.topology.options().response_timeout / 4);
        let mut open = self.apply(Call::by_rule(positioned), replies).await;
        while !open.is_empty() && start.elapsed() < limit {
            tokio::time::sleep(MIGRATION_INTERVAL).await;
            open = self.apply(Call::by_rule(open), replies).await;
        }
        for (position, _) in open {
            if let Some(reply) = replies.get_mut(position) {
                *reply = Some(Reply::Rejected(errors::slot_is_moving()));
            }
        }
    }

    /// Makes calls, and puts the replies to their positions. Returns the requests without a reply.
    async fn apply(
        &self,
        calls: Vec<Call>,
        replies: &mut [Option<Reply>],
    ) -> Vec<(usize, Request)> {
        let mut open = Vec::new();
        for (call, result) in router::route(&self.topology, calls).await {
            let decoded = match result {
                CallResult::NotApplied(error) => {
                    vec![Some(Reply::Rejected(error)); call.positions.len()]
                }
                CallResult::NoReply(error) => {
                    vec![Some(Reply::Unknown(error)); call.positions.len()]
                }
                CallResult::Replied(value, session) => {
                    if let Work::RenewScript(_) = call.work {
                        self.fast_path.note(&value);
                    }
                    let decoded = call.replies(value);
                    if let Some(all) = decoded.iter().cloned().collect::<Option<Vec<_>>>() {
                        session.subscriptions.track(&call.requests, &all);
                    }
                    self.notify_revoked(&decoded, &call);
                    decoded
                }
            };
            for (positioned, decoded) in call.into_positioned().into_iter().zip(decoded) {
                match decoded {
                    None => open.push(positioned),
                    decoded => {
                        if let Some(reply) = replies.get_mut(positioned.0) {
                            *reply = decoded;
                        }
                    }
                }
            }
        }
        open
    }

    /// Notifies local clients whose leases were revoked: a node does not report changes to the connection that
    /// made them.
    fn notify_revoked(&self, replies: &[Option<Reply>], call: &Call) {
        for (request, reply) in call.requests.iter().zip(replies) {
            if let Some(Reply::Applied { outcome, .. }) = reply
                && let Outcome::Revoked(leases) = outcome
            {
                for lease in leases {
                    let event = Event::Changed(request.key.clone());
                    self.topology.notify(lease.client, event);
                }
            }
        }
    }
}

impl Reader for ClusterStore {
    async fn fetch(&self, commands: Vec<KeyedCommand>) -> Result<Vec<Value>> {
        let results = self.execute(commands, false).await?;
        Ok(results.into_iter().map(|result| result.reply).collect())
    }

    fn name_error(&self, error: Error) -> Error {
        error.at_store(self)
    }
}

impl TrackingReader for ClusterStore {
    fn observers(&self) -> &ServerObservers {
        self.topology.observers()
    }

    async fn fetch_tracked(&self, commands: Vec<KeyedCommand>) -> Result<(Vec<Value>, bool)> {
        let mut results = self.execute(commands.clone(), true).await?;
        let session = results.first().map_or(0, |result| result.session);
        if results.iter().any(|result| result.session != session) {
            // The slot has moved, and the time is that of its former owner. The slot map is up to date by now.
            results = self.execute(commands, true).await?;
        }
        let tracked = results.iter().all(|result| result.tracked);
        let replies = results.into_iter().map(|result| result.reply);
        Ok((replies.collect(), tracked))
    }
}

/// The result of a command.
#[derive(Clone, Debug)]
struct CommandResult {
    reply: Value,
    /// The session over which it was executed.
    session: u64,
    /// Whether the next change of its key is reported.
    tracked: bool,
}

impl Default for CommandResult {
    fn default() -> Self {
        Self {
            reply: Value::Nil,
            session: 0,
            tracked: false,
        }
    }
}

impl fmt::Display for ClusterStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.seeds.fmt(f)
    }
}

impl Sealed for ClusterStore {}

impl Store for ClusterStore {
    fn capabilities(&self) -> Capabilities {
        // One call at once: the nodes work side by side already, and a call has the operations of one slot.
        Capabilities::new(StoreKind::Cluster, self.topology.wakeup_mode())
    }

    fn shard(&self, key: &Key) -> Shard {
        self.topology.shard(key)
    }

    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        Box::pin(StoreKind::Cluster.apply(batch, self, |batch| self.apply_batch(batch)))
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Result<Page>> {
        Box::pin(async move {
            StoreKind::Cluster.check_query(&query, self)?;
            let map = self.topology.map();
            let servers = map.nodes().iter().map(|node| &node.manager).collect();
            read::page(self, servers, query).await
        })
    }

    fn listen(&self, space: &Keyspace, client: ClientId, to: Weak<dyn Listener>) -> Listening {
        self.topology.listen(space, client, to);
        let topology = Arc::downgrade(&self.topology);
        Listening::new(move || {
            if let Some(topology) = topology.upgrade() {
                topology.forget(client);
            }
        })
    }
}
