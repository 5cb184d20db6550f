//! A Redis cluster: a store over its masters, each of which has a part of the slots.
//!
//! * `slots` is which slot a key is in, `map` who has which slot by the word of a node.
//! * `topology` keeps the map and the nodes, and knows who listens.
//! * `node` is one of them, with a connection and scripts of its own.
//! * `call` is what is asked of a node: all its keys are in one slot. `route` brings calls to where they
//!   belong.
//!
//! The routing is our own: that of the client library sends things again that may have been applied.

mod call;
mod node;
mod node_addr;
mod router;
mod slot_map;
mod slots;
mod topology;

use std::fmt;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{ClientId, Op, Outcome};
use redis::Value;
use tokio::time::Instant;

use self::call::{Call, Work};
use self::router::CallResult;
use self::topology::Topology;
use super::client_info::{REGISTER, register_cmd, registered};
use super::codec::{REQUESTS_MAX, text};
use super::deployment::Deployment;
use super::errors;
use super::inspect::{self, Query, Reader};
use super::keys::ClientKey;
use crate::store::api::private::Sealed;
use crate::store::api::{
    BoxFuture, Capabilities, ClientInfo, Entry, Event, Key, Keyspace, Listener, Reply, Request,
    Shard, Store, refuse_replicated,
};
use crate::store::options::OpenOptions;
use crate::{Error, ErrorKind, Result};

/// The pause between two looks at a cluster that is not ready.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The pause before an operation is asked for again that came upon a slot on its way.
const MOVE_PAUSE: Duration = Duration::from_millis(5);

/// Lock records in a Redis cluster.
///
/// It connects to its masters when it is opened, and again, on the next call, whenever a connection
/// broke. It never sends anything twice that may have been applied.
#[derive(Debug)]
pub(in crate::store) struct ClusterStore {
    seeds: Deployment,
    topology: Topology,
    /// Whether a server does not know the short way to renew.
    no_short_way: AtomicBool,
}

impl ClusterStore {
    /// Connects to the cluster that a URL names.
    pub(in crate::store) async fn open(url: &str, options: &OpenOptions) -> Result<Self> {
        let Deployment::Cluster(seeds) = Deployment::of(url, options)? else {
            let message =
                "the URL of a cluster must start with redis+cluster:// or rediss+cluster://";
            return Err(Error::new(ErrorKind::InvalidConfig, message));
        };
        let store = Self {
            seeds: Deployment::Cluster(seeds.clone()),
            topology: Topology::new(seeds, options.clone()),
            no_short_way: AtomicBool::new(false),
        };
        let named = |error: Error| error.at_store(&store);
        store.topology.discover().await.map_err(named)?;
        store.greet().await.map_err(named)?;
        Ok(store)
    }

    /// Proves that all slots are served and that all masters let us in. One that just dies may be replaced
    /// within the connect timeout.
    async fn greet(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            let map = self.topology.map();
            let greetings = map.nodes().iter().map(|node| node.greet());
            let greeted = join_all(greetings).await;
            let greeted = greeted.into_iter().zip(map.nodes());
            let trouble = greeted
                .filter_map(|(greeted, node)| Some(greeted.err()?.at_store(node.manager.target())));
            let error = match (map.uncovered(), trouble.last()) {
                (0, None) => return Ok(()),
                (0, Some(error)) => error,
                (uncovered, _) => return Err(errors::slots_without_node(uncovered)),
            };
            let in_time = start.elapsed() < self.topology.options().connect_timeout;
            if error.kind() != ErrorKind::Unreachable || !in_time {
                return Err(error);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
            self.topology.refresh(None).await;
        }
    }

    async fn apply_batch(&self, batch: Vec<Request>) -> Vec<Reply> {
        if let Some(refused) = refuse_replicated(&batch, self) {
            return refused;
        }
        let keys: Vec<_> = batch
            .iter()
            .map(|request| request.key.name.clone())
            .collect();
        let mut replies: Vec<Option<Reply>> = vec![None; batch.len()];
        let mut open: Vec<_> = batch.into_iter().enumerate().collect();
        if self.is_short(&open) {
            let left = self.apply(Call::renewals(open), &mut replies).await;
            open = left;
        }
        // What follows a part of the same name is sent behind its answer.
        while !open.is_empty() {
            let rest = open.split_off(open.len().min(REQUESTS_MAX));
            self.apply_by_rule(open, &mut replies).await;
            open = rest;
        }
        let unknown = || Reply::Unknown(errors::strange_answer());
        let replies = replies.into_iter().zip(keys);
        replies
            .map(|(reply, name)| match reply.unwrap_or_else(unknown) {
                Reply::Rejected(error) => Reply::Rejected(error.for_lock(&name).at_store(self)),
                Reply::Unknown(error) => Reply::Unknown(error.for_lock(&name).at_store(self)),
                applied @ Reply::Applied { .. } => applied,
            })
            .collect()
    }

    /// Asks for operations by the rule, and again for those that came upon a slot on its way, for a while.
    async fn apply_by_rule(&self, placed: Vec<(usize, Request)>, replies: &mut [Option<Reply>]) {
        let (start, patience) = (Instant::now(), self.topology.options().response_timeout / 4);
        let mut left = self.apply(Call::by_rule(placed), replies).await;
        while !left.is_empty() && start.elapsed() < patience {
            tokio::time::sleep(MOVE_PAUSE).await;
            left = self.apply(Call::by_rule(left), replies).await;
        }
        for (addr, _) in left {
            if let Some(reply) = replies.get_mut(addr) {
                *reply = Some(Reply::Rejected(errors::slot_is_moving()));
            }
        }
    }

    /// Whether a batch is renewals and nothing else.
    fn is_short(&self, batch: &[(usize, Request)]) -> bool {
        let renewals = batch
            .iter()
            .all(|(_, request)| matches!(request.op, Op::Renew { .. }));
        renewals && !self.no_short_way.load(Ordering::Relaxed)
    }

    /// Makes calls, puts the replies to their addrs, and answers what was not simply renewed.
    async fn apply(
        &self,
        calls: Vec<Call>,
        replies: &mut [Option<Reply>],
    ) -> Vec<(usize, Request)> {
        let mut left = Vec::new();
        for (call, end) in router::make(&self.topology, calls).await {
            let answers = match end {
                CallResult::NotApplied(error) => {
                    vec![Some(Reply::Rejected(error)); call.addrs.len()]
                }
                CallResult::Unanswered(error) => {
                    vec![Some(Reply::Unknown(error)); call.addrs.len()]
                }
                CallResult::Answered(answer, session) => {
                    if let (Work::RenewScript(..), Value::Array(words)) = (&call.work, &answer)
                        && let Some(Value::BulkString(_)) = words.first()
                        && !self.no_short_way.swap(true, Ordering::Relaxed)
                    {
                        tracing::debug!(?answer, "renewals use the rule");
                    }
                    let answers = call.replies(answer);
                    if let Some(all) = answers.iter().cloned().collect::<Option<Vec<_>>>() {
                        session.subscriptions.note(call.work.requests(), &all);
                    }
                    self.tell_revoked(&answers, &call);
                    answers
                }
            };
            for (placed, answer) in call.into_placed().into_iter().zip(answers) {
                match answer {
                    None => left.push(placed),
                    answer => {
                        if let Some(reply) = replies.get_mut(placed.0) {
                            *reply = answer;
                        }
                    }
                }
            }
        }
        left
    }

    /// Tells those who were cut off: a node does not tell of what came over the connection that it would
    /// tell.
    fn tell_revoked(&self, answers: &[Option<Reply>], call: &Call) {
        for (request, reply) in call.work.requests().iter().zip(answers) {
            if let Some(Reply::Applied { outcome, .. }) = reply
                && let Outcome::Revoked {
                    cut_off: Some(lease),
                } = outcome
            {
                let event = Event::Changed(request.key.clone());
                self.topology.tell(lease.client, event);
            }
        }
    }

    async fn list_all(&self, space: &Keyspace) -> Result<Vec<Entry>> {
        let map = self.topology.map();
        let servers = map.nodes().iter().map(|node| &node.manager).collect();
        inspect::list(self, servers, space).await
    }

    async fn write_client_info(
        &self,
        space: &Keyspace,
        client: ClientId,
        info: &ClientInfo,
        ttl: Duration,
    ) -> Result<()> {
        // A good moment to see to it that all nodes can tell us things, also those that have come.
        self.topology.refresh(None).await;
        let map = self.topology.map();
        let settled = map.nodes().iter().map(|node| node.manager.settled());
        drop(join_all(settled).await);
        let key = ClientKey(space, client).to_string();
        let cmd = register_cmd("EVAL", REGISTER, &key, info, ttl);
        let answers = self.read(vec![(key.clone(), cmd)]).await?;
        let answered = answers.into_iter().next();
        let answered = registered(&key, answered.unwrap_or(Value::Nil));
        answered.map_err(|error| error.at_store(self))
    }
}

/// Whether a server that said hello is a node of a cluster.
pub(super) fn is_node(hello: &Value) -> bool {
    let is_mode = |name: &Value, value: &Value| {
        text(name).as_deref() == Some("mode") && text(value).as_deref() == Some("cluster")
    };
    match hello {
        Value::Map(fields) => fields.iter().any(|(name, value)| is_mode(name, value)),
        Value::Array(flat) => flat.chunks_exact(2).any(|pair| is_mode(&pair[0], &pair[1])),
        _ => false,
    }
}

impl Reader for ClusterStore {
    async fn read(&self, queries: Vec<Query>) -> Result<Vec<Value>> {
        let mut answers = vec![Value::Nil; queries.len()];
        let calls = queries.into_iter().enumerate();
        let calls = calls.map(|(addr, (key, cmd))| Call::plain(&key, cmd, addr));
        for (call, end) in router::make(&self.topology, calls.collect()).await {
            match end {
                CallResult::Answered(answer, _) => {
                    if let Some(addr) = call.addrs.first().and_then(|at| answers.get_mut(*at)) {
                        *addr = answer;
                    }
                }
                CallResult::NotApplied(error) | CallResult::Unanswered(error) => {
                    return Err(self.name_error(error));
                }
            }
        }
        Ok(answers)
    }

    fn name_error(&self, error: Error) -> Error {
        error.at_store(self)
    }
}

impl fmt::Display for ClusterStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.seeds.fmt(f)
    }
}

impl Sealed for ClusterStore {}

impl Store for ClusterStore {
    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        Box::pin(self.apply_batch(batch))
    }

    fn shard(&self, key: &Key) -> Shard {
        self.topology.shard(key)
    }

    fn listen(&self, space: &Keyspace, client: ClientId, listener: Weak<dyn Listener>) {
        self.topology.listen(space, client, listener);
    }

    fn forget(&self, client: ClientId) {
        self.topology.forget(client);
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(self.topology.wakeup_mode())
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Entry>>> {
        Box::pin(inspect::inspect(self, key))
    }

    fn list<'a>(&'a self, space: &'a Keyspace) -> BoxFuture<'a, Result<Vec<Entry>>> {
        Box::pin(self.list_all(space))
    }

    fn register_client<'a>(
        &'a self,
        space: &'a Keyspace,
        client: ClientId,
        info: &'a ClientInfo,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.write_client_info(space, client, info, ttl))
    }
}
