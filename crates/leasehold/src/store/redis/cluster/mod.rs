//! A Redis cluster: a store over its masters, each of which has a part of the slots.
//!
//! * `slots` is which slot a key is in, `map` who has which slot by the word of a node.
//! * `atlas` keeps the map and the nodes, and knows who listens.
//! * `node` is one of them, with a connection and scripts of its own.
//! * `call` is what is asked of a node: all its keys are in one slot. `route` brings calls to where they
//!   belong.
//!
//! The routing is our own: that of the client library sends things again that may have been applied.

mod atlas;
mod call;
mod map;
mod node;
mod route;
mod slots;

use std::fmt;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{ClientId, Op, Outcome};
use redis::Value;
use tokio::time::Instant;

use self::atlas::Atlas;
use self::call::{Call, Work};
use self::route::End;
use super::address::Address;
use super::announcement::{ANNOUNCE, announced, announcement};
use super::batch::{REQUESTS_MAX, text};
use super::deployment::Deployment;
use super::errors;
use super::keys::ClientKey;
use super::read::{self, Question, Reader};
use crate::store::{
    About, BoxFuture, Entry, Event, Key, Listener, OpenOptions, Reply, Request, Shard, Space,
    Store, Wakes, refuse_replicated,
};
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
#[cfg_attr(
    not(feature = "__bench"),
    expect(unreachable_pub, reason = "only the bench names it")
)]
pub struct ClusterStore {
    seeds: Deployment,
    atlas: Atlas,
    /// Whether a server does not know the short way to renew.
    no_short_way: AtomicBool,
}

impl ClusterStore {
    pub(super) async fn connect(seeds: Vec<Address>, options: &OpenOptions) -> Result<Self> {
        let store = Self {
            seeds: Deployment::Cluster(seeds.clone()),
            atlas: Atlas::new(seeds, options.clone()),
            no_short_way: AtomicBool::new(false),
        };
        let named = |error: Error| error.at_store(&store);
        store.atlas.discover().await.map_err(named)?;
        store.greet().await.map_err(named)?;
        Ok(store)
    }

    /// Connects to the cluster that a URL names.
    #[cfg(feature = "__bench")]
    pub(in crate::store) async fn open(url: &str, options: &OpenOptions) -> Result<Self> {
        match super::deployment(url, options)? {
            Deployment::Cluster(seeds) => Self::connect(seeds, options).await,
            other => Err(super::not_yet(&other)),
        }
    }

    /// How many script calls were sent to the nodes that are there.
    #[cfg(feature = "__bench")]
    pub(in crate::store) fn calls(&self) -> u64 {
        let map = self.atlas.map();
        map.nodes().iter().map(|node| node.calls()).sum()
    }

    /// Proves that all slots are served and that all masters let us in. One that just dies may be replaced
    /// within the connect timeout.
    async fn greet(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            let map = self.atlas.map();
            let greetings = map.nodes().iter().map(|node| node.greet());
            let greeted = join_all(greetings).await;
            let greeted = greeted.into_iter().zip(map.nodes());
            let trouble = greeted
                .filter_map(|(greeted, node)| Some(greeted.err()?.at_store(node.link.place())));
            let error = match (map.uncovered(), trouble.last()) {
                (0, None) => return Ok(()),
                (0, Some(error)) => error,
                (uncovered, _) => return Err(errors::slots_without_node(uncovered)),
            };
            let in_time = start.elapsed() < self.atlas.options().connect_timeout;
            if error.kind() != ErrorKind::Unreachable || !in_time {
                return Err(error);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
            self.atlas.refresh(None).await;
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
        let (start, patience) = (Instant::now(), self.atlas.options().response_timeout / 4);
        let mut left = self.apply(Call::by_rule(placed), replies).await;
        while !left.is_empty() && start.elapsed() < patience {
            tokio::time::sleep(MOVE_PAUSE).await;
            left = self.apply(Call::by_rule(left), replies).await;
        }
        for (place, _) in left {
            if let Some(reply) = replies.get_mut(place) {
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

    /// Makes calls, puts the replies to their places, and answers what was not simply renewed.
    async fn apply(
        &self,
        calls: Vec<Call>,
        replies: &mut [Option<Reply>],
    ) -> Vec<(usize, Request)> {
        let mut left = Vec::new();
        for (call, end) in route::make(&self.atlas, calls).await {
            let answers = match end {
                End::NotApplied(error) => vec![Some(Reply::Rejected(error)); call.places.len()],
                End::Unanswered(error) => vec![Some(Reply::Unknown(error)); call.places.len()],
                End::Answered(answer, dialed) => {
                    if let (Work::Renewals(..), Value::Array(words)) = (&call.work, &answer)
                        && let Some(Value::BulkString(_)) = words.first()
                        && !self.no_short_way.swap(true, Ordering::Relaxed)
                    {
                        tracing::debug!(?answer, "renewals go the long way");
                    }
                    let answers = call.replies(answer);
                    if let Some(all) = answers.iter().cloned().collect::<Option<Vec<_>>>() {
                        dialed.news.note(call.work.requests(), &all);
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
                self.atlas.tell(lease.client, event);
            }
        }
    }

    async fn list_all(&self, space: &Space) -> Result<Vec<Entry>> {
        let map = self.atlas.map();
        let servers = map.nodes().iter().map(|node| &node.link).collect();
        read::list(self, servers, space).await
    }

    async fn announce_client(
        &self,
        space: &Space,
        client: ClientId,
        about: &About,
        ttl: Duration,
    ) -> Result<()> {
        // A good moment to see to it that all nodes can tell us things, also those that have come.
        self.atlas.refresh(None).await;
        let map = self.atlas.map();
        let settled = map.nodes().iter().map(|node| node.link.settled());
        drop(join_all(settled).await);
        let key = ClientKey(space, client).to_string();
        let cmd = announcement("EVAL", ANNOUNCE, &key, about, ttl);
        let answers = self.read(vec![(key.clone(), cmd)]).await?;
        let answered = answers.into_iter().next();
        let answered = announced(&key, answered.unwrap_or(Value::Nil));
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
    async fn read(&self, questions: Vec<Question>) -> Result<Vec<Value>> {
        let mut answers = vec![Value::Nil; questions.len()];
        let calls = questions.into_iter().enumerate();
        let calls = calls.map(|(place, (key, cmd))| Call::plain(&key, cmd, place));
        for (call, end) in route::make(&self.atlas, calls.collect()).await {
            match end {
                End::Answered(answer, _) => {
                    if let Some(place) = call.places.first().and_then(|at| answers.get_mut(*at)) {
                        *place = answer;
                    }
                }
                End::NotApplied(error) | End::Unanswered(error) => {
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

impl Store for ClusterStore {
    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        Box::pin(self.apply_batch(batch))
    }

    fn shard(&self, key: &Key) -> Shard {
        self.atlas.shard(key)
    }

    fn listen(&self, space: &Space, client: ClientId, listener: Weak<dyn Listener>) {
        self.atlas.listen(space, client, listener);
    }

    fn forget(&self, client: ClientId) {
        self.atlas.forget(client);
    }

    fn wakes(&self) -> Wakes {
        self.atlas.wakes()
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Entry>>> {
        Box::pin(read::inspect(self, key))
    }

    fn list<'a>(&'a self, space: &'a Space) -> BoxFuture<'a, Result<Vec<Entry>>> {
        Box::pin(self.list_all(space))
    }

    fn announce<'a>(
        &'a self,
        space: &'a Space,
        client: ClientId,
        about: &'a About,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.announce_client(space, client, about, ttl))
    }
}
