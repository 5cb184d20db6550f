//! The Redis store: a single server over TCP, TLS or a unix socket, or the master that sentinels name.
//!
//! * `address` is the URL of a server, `deployment` that of servers that belong together.
//! * `connection_manager` keeps one `session` to a `target`, which `connect` opens; `sentinel` finds the
//!   target where sentinels know it.
//! * `subscriptions` receives grants, `tracking` detects changed records, and `notifications` passes both
//!   on to the clients.
//! * `rule` applies batches with the scripts: `scripts/mutex.lua` is the rule, and the comment at its top
//!   describes every key and the wire format. `codec` writes its arguments and reads its answer;
//!   `renew_script` is the fast path for renewals. `script` calls scripts.
//! * `continuation` passes over many dead waiters in several short calls.
//! * `replicas` waits for acknowledgements of replicas.
//! * `inspect` reads records, `client_info` stores the description of a client.
//! * `cluster` is the store over the nodes of a cluster, `master` a server that is one of many.
//! * `diagnose` collects facts for [`doctor`](crate::doctor).
//! * `errors` describes the errors of a server.

pub(super) mod address;
mod client_info;
mod cluster;
mod codec;
mod connect;
mod connection_manager;
mod continuation;
pub(super) mod deployment;
#[cfg(feature = "doctor")]
mod diagnose;
pub(super) mod errors;
#[cfg(any(test, feature = "__fuzz"))]
pub(crate) mod fuzzing;
mod inspect;
mod keys;
pub(super) mod master;
mod notifications;
mod renew_script;
mod replicas;
mod rule;
mod script;
mod sentinel;
mod session;
mod session_state;
mod subscriptions;
mod target;
mod tracking;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::ClientId;
use redis::aio::MultiplexedConnection;
use redis::cmd;

use self::client_info::{REGISTER, register_cmd, registered};
pub(super) use self::cluster::ClusterStore;
use self::connect::Role;
use self::connection_manager::{ConnectionManager, ExchangeError};
use self::continuation::continue_passing;
use self::deployment::Deployment;
#[cfg(feature = "doctor")]
pub(super) use self::diagnose::diagnose;
use self::keys::ClientKey;
use self::replicas::{Replicas, Waits};
use self::rule::RuleScripts;
use self::script::Script;
use self::session::Session;
use self::target::Target;
use crate::store::api::private::Sealed;
use crate::store::api::{
    BoxFuture, Capabilities, ClientInfo, Entry, Key, Keyspace, Listener, Reply, Request, Store,
    WakeupMode,
};
use crate::store::options::OpenOptions;
use crate::{Durability, ErrorKind, Result};

/// Lock records in a Redis server.
///
/// It connects when it is opened and again, on the next call, whenever the connection broke. It
/// never sends anything twice.
#[derive(Debug)]
pub struct RedisStore {
    manager: ConnectionManager,
    replicas: Replicas,
    rule: RuleScripts,
    register: Script,
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
        let target = Target::of(Deployment::of(url, options)?, options)?;
        let manager =
            ConnectionManager::new(target, options.connect_timeout, options.response_timeout);
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
            register: Script::new(REGISTER),
            master,
        }
    }

    /// The number of script calls sent so far.
    #[doc(hidden)]
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.rule.calls() + self.register.calls()
    }

    pub(super) fn wakeup_mode(&self) -> WakeupMode {
        self.manager.notifications().wakeup_mode()
    }

    /// Proves that the server responds, accepts us and can run the rule.
    async fn greet(&self) -> Result<()> {
        if let Err(error) = rule::greet(&self.manager, &self.rule.mutex).await {
            if error.kind() == ErrorKind::Unsupported
                && let Some(masters) = self.monitored_masters().await
            {
                return Err(errors::sentinel(&masters).at_store(self));
            }
            return Err(error.at_store(self));
        }
        // Every user may send HELLO. A server before 6.0 does not know it; one that does not answer now
        // fails at the first request.
        let hello = cmd("HELLO");
        let asked = |mut connection: MultiplexedConnection| async move {
            connection.send_packed_command(&hello).await
        };
        match self.manager.exchange(asked).await {
            Ok(hello) if cluster::is_node(&hello) => {
                Err(errors::cluster_without_its_name().at_store(self))
            }
            _ => Ok(()),
        }
    }

    /// The masters that the server monitors, if it is a sentinel.
    async fn monitored_masters(&self) -> Option<Vec<String>> {
        let role = |mut connection| async move { Ok(connect::role(&mut connection).await) };
        match self.manager.exchange(role).await {
            Ok(Some(Role::Sentinel(masters))) => Some(masters),
            _ => None,
        }
    }

    async fn apply_batch(&self, batch: Vec<Request>) -> Vec<Reply> {
        if batch.is_empty() {
            return Vec::new();
        }
        self.manager.notifications().retry_denied(&batch);
        let replicated = |request: &Request| request.durability.is_replicated();
        let mut replies = match batch.iter().filter(|request| replicated(request)).count() {
            0 => self.apply_plain(&batch).await,
            count if count == batch.len() => self.apply_replicated(&batch).await,
            _ => self.apply_mixed(&batch).await,
        };
        // A request whose answer is missing may have been applied.
        replies.resize(batch.len(), Reply::Unknown(errors::strange_answer()));
        for (reply, request) in replies.iter_mut().zip(&batch) {
            if let Reply::Rejected(error) | Reply::Unknown(error) = reply {
                *error = error.clone().for_lock(&request.key.name).at_store(self);
            }
        }
        replies
    }

    /// Applies requests that wait for replicas beside those that do not.
    async fn apply_mixed(&self, batch: &[Request]) -> Vec<Reply> {
        let (replicated, plain): (Vec<_>, Vec<_>) = batch
            .iter()
            .cloned()
            .partition(|request| request.durability.is_replicated());
        let (replicated, plain) =
            tokio::join!(self.apply_replicated(&replicated), self.apply_plain(&plain));
        let (mut replicated, mut plain) = (replicated.into_iter(), plain.into_iter());
        let unknown = || Reply::Unknown(errors::strange_answer());
        let replies = batch.iter().map(|request| {
            let reply = match request.durability.is_replicated() {
                true => replicated.next(),
                false => plain.next(),
            };
            reply.unwrap_or_else(unknown)
        });
        replies.collect()
    }

    async fn apply_plain(&self, requests: &[Request]) -> Vec<Reply> {
        let notifications = self.manager.notifications();
        let mut unfinished = Vec::new();
        let open = &mut unfinished;
        let answers = self
            .manager
            .exchange_settled(Duration::ZERO, |session| async move {
                let mut connection = session.connection.clone();
                let replies = self
                    .rule
                    .apply(&mut connection, requests, notifications, open);
                Ok((replies.await?, session))
            })
            .await;
        let replies = self.finish(&self.manager, requests, answers);
        continue_passing(&self.manager, &self.rule.mutex, unfinished).await;
        replies
    }

    /// Applies requests whose grants and renewals take effect once replicas have acknowledged them.
    async fn apply_replicated(&self, requests: &[Request]) -> Vec<Reply> {
        let mut ready = self.replicas.count_for(requests).await;
        // A waiter is notified over the main connection.
        if ready.is_ok() && requests.iter().any(Request::acquires) {
            ready = self.manager.settled().await.map(drop);
        }
        if let Err(error) = ready {
            return vec![Reply::Rejected(error); requests.len()];
        }
        let (manager, _turn) = self.replicas.turn().await;
        let notifications = self.manager.notifications();
        // The server may still be waiting for the previous batch, whose caller may have given up, and a
        // repeated call by the text of the script waits again.
        let time = Waits::of(requests).time().saturating_mul(3);
        let mut unfinished = Vec::new();
        let open = &mut unfinished;
        let answers = manager
            .exchange_settled(time, |session| async move {
                let mut executor = self.replicas.executor(session.connection.clone(), requests);
                let replies = self
                    .rule
                    .apply(&mut executor, requests, notifications, open);
                let mut replies = replies.await?;
                executor.into_waits().check(requests, &mut replies);
                Ok((replies, session))
            })
            .await;
        let replies = self.finish(manager, requests, answers);
        continue_passing(&self.manager, &self.rule.mutex, unfinished).await;
        replies
    }

    /// Makes the replies of an exchange, and updates what depends on them.
    fn finish(
        &self,
        manager: &ConnectionManager,
        requests: &[Request],
        answers: Result<(Vec<Reply>, Arc<Session>), ExchangeError>,
    ) -> Vec<Reply> {
        match answers {
            Err(ExchangeError::NotSent(error)) => vec![Reply::Rejected(error); requests.len()],
            Err(ExchangeError::Unanswered(error)) => vec![Reply::Unknown(error); requests.len()],
            Ok((mut replies, session)) => {
                manager.check_demotion(&session, &mut replies);
                session.subscriptions.track(requests, &replies);
                rule::notify_local(self.manager.notifications(), requests, &replies);
                replies
            }
        }
    }

    async fn write_client_info(
        &self,
        space: &Keyspace,
        client: ClientId,
        info: &ClientInfo,
        ttl: Duration,
    ) -> Result<()> {
        let key = ClientKey(space, client).to_string();
        let cmd = |verb: &str, script: &str| register_cmd(verb, script, &key, info, ttl);
        let answer = self
            .manager
            .exchange(
                |mut connection| async move { self.register.call(&mut connection, cmd).await },
            )
            .await;
        let result = match answer {
            Err(ExchangeError::NotSent(error) | ExchangeError::Unanswered(error)) => Err(error),
            Ok(answer) => registered(&key, answer),
        };
        result.map_err(|error| error.at_store(self))
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
    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        Box::pin(self.apply_batch(batch))
    }

    fn listen(&self, space: &Keyspace, client: ClientId, listener: Weak<dyn Listener>) {
        self.manager.notifications().add(space, client, listener);
    }

    fn forget(&self, client: ClientId) {
        self.manager.forget(client);
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            replicas: true,
            ..Capabilities::new(self.wakeup_mode())
        }
    }

    fn check(&self, durability: Durability) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            match durability {
                Durability::None => Ok(()),
                Durability::Replicas { count, .. } => {
                    let checked = self.replicas.check(count).await;
                    checked.map_err(|error| error.at_store(self))
                }
            }
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Entry>>> {
        Box::pin(inspect::inspect(&self.manager, key))
    }

    fn list<'a>(&'a self, space: &'a Keyspace) -> BoxFuture<'a, Result<Vec<Entry>>> {
        Box::pin(inspect::list(&self.manager, vec![&self.manager], space))
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
