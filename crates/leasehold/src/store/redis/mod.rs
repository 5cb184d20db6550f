//! The Redis store: a single server over TCP, TLS or a unix socket, or the master that sentinels name.
//!
//! * `address` is the URL of a server, `redis_address` has its parts, `deployment` is the URL of servers that belong
//!   together.
//! * `connection_manager` keeps one `session` to a `target`, which `connect` opens; `sentinel` finds the
//!   target where sentinels know it.
//! * `subscriptions` receives grants, `tracking` detects changed records, and `notifications` passes both
//!   on to the clients.
//! * `script` calls scripts, and applies batches with them: `scripts/mutex.lua` is the rule, and the comment at
//!   its top describes every key and the wire format; `scripts/renew.lua` is the fast path for renewals. `codec`
//!   writes the arguments and reads the replies.
//! * `keys` writes and parses the names of keys, `slots` computes the slot of a cluster that a key has.
//! * `replicas` waits for acknowledgements of replicas.
//! * `read` reads the state of names and clients over a `reader`, and the `observers` are notified of their changes.
//! * `beside` applies operations that are not of a lock: `latches` counts arrivals at latches, `latch_status` parses their
//!   status. `annotations` parses the texts of holders.
//! * `cluster` is the store over the nodes of a cluster, `master` a server that is one of many.
//! * `diagnose` collects facts for [`doctor`](crate::doctor).
//! * `errors` describes the errors of a server.

pub(super) mod address;
mod annotations;
mod beside;
mod cluster;
mod codec;
mod connect;
mod connection_manager;
pub(super) mod deployment;
#[cfg(feature = "doctor")]
mod diagnose;
pub(super) mod errors;
#[cfg(any(test, feature = "__fuzz"))]
pub(crate) mod fuzzing;
mod keys;
mod latch_status;
mod latches;
pub(super) mod master;
mod notifications;
mod observers;
mod read;
mod reader;
mod redis_address;
mod replicas;
mod script;
mod sentinel;
mod session;
mod session_state;
mod slots;
mod subscriptions;
mod target;
mod tracking;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::ClientId;
use redis::cmd;

use self::beside::is_of_rule;
pub(super) use self::cluster::ClusterStore;
use self::connect::Role;
use self::connection_manager::ConnectionManager;
use self::deployment::Deployment;
#[cfg(feature = "doctor")]
pub(super) use self::diagnose::diagnose;
pub use self::redis_address::RedisAddress;
use self::replicas::{Replicas, Waits};
use self::script::{RuleScripts, Script, continue_passing, notify_local};
use self::session::Session;
use self::target::Target;
use crate::store::api::private::Sealed;
use crate::store::api::{
    BoxFuture, Capabilities, Key, Keyspace, Listener, Listening, Page, Query, Reply, Request,
    Shard, Store, StoreKind, WakeupMode,
};
use crate::store::options::OpenOptions;
use crate::{Durability, ErrorKind, Result};

/// How many calls a client has in flight at once: the server processes some while the client processes the replies to
/// another one. With more, each call has fewer operations, and an operation costs more of the server's time.
const PARALLEL_CALLS: u64 = 4;

/// Lock records in a Redis server.
///
/// It connects when it is opened and again, on the next call, whenever the connection broke. It
/// never sends anything twice.
#[derive(Debug)]
pub struct RedisStore {
    manager: ConnectionManager,
    replicas: Replicas,
    rule: RuleScripts,
    /// Inspects and admits the server, if it is one of many masters.
    master: Option<Script>,
}

impl RedisStore {
    /// Connects to the server that a URL names, for programs that want this store and no other.
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

    /// Connects to a deployment with a single connection.
    pub(super) async fn connect(deployment: Deployment, options: &OpenOptions) -> Result<Self> {
        let target = Target::of(deployment, options)?;
        let manager = ConnectionManager::new(target, options);
        let store = Self::new(manager, None);
        store.greet().await?;
        Ok(store)
    }

    /// Connects on first use. `master` is its script if it is one of many masters.
    fn new(manager: ConnectionManager, master: Option<Script>) -> Self {
        Self {
            replicas: Replicas::beside(&manager),
            manager,
            rule: RuleScripts::new(master.is_some()),
            master,
        }
    }

    /// The number of script calls sent so far.
    #[doc(hidden)]
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.rule.calls()
    }

    pub(super) fn wakeup_mode(&self) -> WakeupMode {
        self.manager.notifications().wakeup_mode()
    }

    /// Proves that the server responds, accepts us and can run the rule.
    async fn greet(&self) -> Result<()> {
        if let Err(error) = script::greet(&self.manager, &self.rule.mutex).await {
            if error.kind() == ErrorKind::Unsupported
                && let Some(masters) = self.monitored_masters().await
            {
                return Err(errors::sentinel(&masters).at_store(self));
            }
            return Err(error.at_store(self));
        }
        // Every user may send HELLO. A server before 6.0 does not know it; one that does not reply now
        // fails at the first request.
        match self.manager.query(cmd("HELLO")).await {
            Ok(hello) if connect::is_cluster_node(&hello) => {
                Err(errors::cluster_without_its_name().at_store(self))
            }
            _ => Ok(()),
        }
    }

    /// The masters that the server monitors, if it is a sentinel.
    async fn monitored_masters(&self) -> Option<Vec<String>> {
        let role = |mut connection| async move { Ok(connect::role(&mut connection).await) };
        match self.manager.exchange(Duration::ZERO, role).await {
            Ok(Some(Role::Sentinel(masters))) => Some(masters),
            _ => None,
        }
    }

    async fn apply_batch(&self, batch: Vec<Request>) -> Vec<Reply> {
        if batch.is_empty() {
            return Vec::new();
        }
        if !batch.iter().all(|request| is_of_rule(&request.op)) {
            let (manager, observers) = (&self.manager, self.manager.notifications().observers());
            let check = |error| manager.check_demoted(error);
            return beside::apply_each(self, manager, observers, check, batch).await;
        }
        let notifications = self.manager.notifications();
        notifications.retry_denied(&batch);
        let changing = batch.iter().map(|request| &request.key);
        let _own_changes = notifications.observers().own_changes(changing);
        let replicated = |request: &&Request| request.durability.is_replicated();
        let mut replies = match batch.iter().filter(replicated).count() {
            0 => match self.manager.settled(Duration::ZERO).await {
                Ok((session, deadline)) => {
                    let mut connection = session.connection.clone();
                    let mut unfinished = Vec::new();
                    let applied =
                        self.rule
                            .apply(&mut connection, &batch, notifications, &mut unfinished);
                    let applied = self.manager.await_reply(&session, deadline, applied).await;
                    let replies = self.finish(&self.manager, &session, &batch, applied);
                    continue_passing(&self.manager, &self.rule.mutex, unfinished).await;
                    replies
                }
                Err(error) => vec![Reply::Rejected(error); batch.len()],
            },
            count if count == batch.len() => self.apply_replicated(&batch).await,
            _ => self.apply_mixed(&batch).await,
        };
        // A request whose reply is missing may have been applied.
        replies.resize(batch.len(), Reply::Unknown(errors::invalid_reply()));
        let replies = replies.into_iter().zip(&batch);
        let named = |(reply, request): (Reply, &Request)| {
            reply.map_error(|error| error.for_lock(&request.key.name).at_store(self))
        };
        replies.map(named).collect()
    }

    /// Applies requests that wait for replicas beside those that do not.
    async fn apply_mixed(&self, batch: &[Request]) -> Vec<Reply> {
        let (replicated, plain): (Vec<_>, Vec<_>) = batch
            .iter()
            .cloned()
            .partition(|request| request.durability.is_replicated());
        let (replicated, plain) =
            tokio::join!(self.apply_replicated(&replicated), self.apply(plain));
        let (mut replicated, mut plain) = (replicated.into_iter(), plain.into_iter());
        let unknown = || Reply::Unknown(errors::invalid_reply());
        let replies = batch.iter().map(|request| {
            let reply = match request.durability.is_replicated() {
                true => replicated.next(),
                false => plain.next(),
            };
            reply.unwrap_or_else(unknown)
        });
        replies.collect()
    }

    /// Applies requests whose grants and renewals take effect once replicas have acknowledged them.
    async fn apply_replicated(&self, requests: &[Request]) -> Vec<Reply> {
        let mut ready = self.replicas.count_for(requests).await;
        // A waiter is notified over the main connection.
        if ready.is_ok() && requests.iter().any(Request::acquires) {
            ready = self.manager.settled(Duration::ZERO).await.map(drop);
        }
        if let Err(error) = ready {
            return vec![Reply::Rejected(error); requests.len()];
        }
        let (manager, _turn) = self.replicas.turn().await;
        // The server may still be waiting for the previous batch, whose caller may have given up, and a
        // repeated call by the text of the script waits again.
        let time = Waits::of(requests).time().saturating_mul(3);
        let (session, deadline) = match manager.settled(time).await {
            Ok(settled) => settled,
            Err(error) => return vec![Reply::Rejected(error); requests.len()],
        };
        let mut unfinished = Vec::new();
        let applied = async {
            let connection = session.connection.clone();
            let mut connection = self.replicas.acknowledged(connection, requests);
            let notifications = self.manager.notifications();
            let replies =
                self.rule
                    .apply(&mut connection, requests, notifications, &mut unfinished);
            let mut replies = replies.await?;
            connection.into_waits().check(requests, &mut replies);
            Ok(replies)
        };
        let applied = manager.await_reply(&session, deadline, applied).await;
        let replies = self.finish(manager, &session, requests, applied);
        continue_passing(&self.manager, &self.rule.mutex, unfinished).await;
        replies
    }

    /// Makes the replies of an exchange, and updates what depends on them.
    fn finish(
        &self,
        manager: &ConnectionManager,
        session: &Arc<Session>,
        requests: &[Request],
        applied: Result<Vec<Reply>>,
    ) -> Vec<Reply> {
        match applied {
            Err(error) => vec![Reply::Unknown(error); requests.len()],
            Ok(mut replies) => {
                manager.check_demotion(session, &mut replies);
                session.subscriptions.track(requests, &replies);
                notify_local(self.manager.notifications(), requests, &replies);
                replies
            }
        }
    }
}

impl fmt::Display for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.manager.target().fmt(f)
    }
}

impl Sealed for RedisStore {}

#[doc(hidden)]
impl Store for RedisStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            parallel_calls: PARALLEL_CALLS,
            ..Capabilities::new(StoreKind::Redis, self.wakeup_mode())
        }
    }

    fn shard(&self, _key: &Key) -> Shard {
        Shard(0)
    }

    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        Box::pin(StoreKind::Redis.apply(batch, self, |batch| self.apply_batch(batch)))
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Result<Page>> {
        Box::pin(async move {
            StoreKind::Redis.check_query(&query, self)?;
            if let Query::Durability(Durability::Replicas { count, .. }) = query {
                let checked = self.replicas.check(count).await;
                checked.map_err(|error| error.at_store(self))?;
            }
            read::page(&self.manager, vec![&self.manager], query).await
        })
    }

    fn listen(&self, space: &Keyspace, client: ClientId, to: Weak<dyn Listener>) -> Listening {
        self.manager.listen(space, client, to)
    }
}
