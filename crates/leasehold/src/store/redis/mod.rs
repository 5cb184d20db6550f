//! The Redis store: a single server over TCP, TLS or a unix socket, or the one that sentinels name.
//!
//! * `address` is what a URL says of a server, `deployment` of servers that belong together.
//! * `dial` makes a connection, `connection` keeps one and makes it anew; `target` is where it goes,
//!   which `sentinel` finds out where sentinels know it.
//! * `notifications` are who is told what the server tells; `subscriptions` makes it tell grants, and `watch`
//!   changes.
//! * `scripts/mutex.lua` is the rule; its head describes every key and the whole wire format.
//!   `script` calls it, `batch` writes its arguments and reads its answer. `renewals` is the short way
//!   for what it does most often.
//! * `replicas` waits until replicas have what came of requests.
//! * `read` looks at records, for listings.
//! * `cluster` is a store over the nodes of a cluster.
//! * `survey` looks at servers, for those who ask what would lose locks.
//! * `announcement` writes down who a client is.
//! * `errors` is what a server's errors mean.

pub(super) mod address;
mod client_info;
mod cluster;
mod codec;
mod connect;
mod connection_manager;
pub(super) mod deployment;
pub(super) mod errors;
#[cfg(any(test, feature = "__fuzz"))]
#[doc(hidden)]
pub mod fuzzing;
mod inspect;
mod keys;
pub(super) mod master;
mod notifications;
mod renew_script;
mod replicas;
mod script;
mod sentinel;
mod session;
mod subscriptions;
mod survey;
mod target;
mod tracking;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::{ClientId, Outcome};
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value, cmd};

use self::client_info::{ANNOUNCE, announced, client_info};
use self::cluster::ClusterStore;
use self::codec::{CallOptions, REQUESTS_MAX};
use self::connect::Role;
use self::connection_manager::{ConnectionManager, Trouble};
use self::deployment::Deployment;
use self::keys::ClientKey;
use self::renew_script::RenewScript;
use self::replicas::{Replicas, Waits};
use self::script::{Executor, Script};
use self::sentinel::Sentinels;
use self::session::Session;
pub(super) use self::survey::survey;
use self::target::Target;
use super::{
    About, BoxFuture, Entry, Key, Keyspace, Listener, OpenOptions, Reply, Request, Store,
    WakeupMode,
};
use crate::{Durability, Error, ErrorKind, Result};

/// The rule.
const MUTEX: &str = include_str!("scripts/mutex.lua");

/// Opens the store that the URL of one or more Redis servers names.
///
/// # Errors
///
/// As for [`open`](super::open).
pub(super) async fn open(url: &str, options: &OpenOptions) -> Result<Arc<dyn Store>> {
    match deployment(url, options)? {
        Deployment::Masters(_) => Ok(Arc::new(super::RedlockStore::open(url, options).await?)),
        Deployment::Cluster(seeds) => Ok(Arc::new(ClusterStore::connect(seeds, options).await?)),
        other => Ok(Arc::new(
            RedisStore::connect(target(other, options)?, options).await?,
        )),
    }
}

/// The URL of a store as its `Display` shows it.
pub(super) fn redacted_url(url: &str) -> Result<String> {
    Ok(Deployment::parse(url)?.to_string())
}

/// Where the server of a deployment is that has one.
fn target(deployment: Deployment, options: &OpenOptions) -> Result<Target> {
    match deployment {
        Deployment::Single(address) => Ok(Target::Fixed(address)),
        Deployment::Sentinel(set) => {
            let password = options.sentinel_password.clone();
            Ok(Target::Found(Sentinels::new(set, password)))
        }
        other => Err(not_yet(&other)),
    }
}

pub(super) fn deployment(url: &str, options: &OpenOptions) -> Result<Deployment> {
    let mut deployment = Deployment::parse(url)?;
    if let Some(password) = &options.password {
        deployment.set_password(password);
    }
    Ok(deployment)
}

fn not_yet(deployment: &Deployment) -> Error {
    let message = "this deployment is not supported";
    Error::new(ErrorKind::Unsupported, message).at_store(deployment)
}

/// Proves that a server is there, lets us in and knows the script.
async fn greet(manager: &ConnectionManager, mutex: &Script) -> Result<()> {
    let cmd = |verb: &str, script: &str| codec::encode(verb, script, &[], CallOptions::default());
    let answer = manager
        .exchange(|mut connection| async move { mutex.call(&mut connection, cmd).await })
        .await;
    Err(match answer {
        Err(Trouble::NotSent(error) | Trouble::Unanswered(error)) => error,
        Ok(Value::Array(answer)) => match answer.as_slice() {
            [Value::Int(_)] => return Ok(()),
            _ => codec::failed_command("", &Value::Array(answer))
                .unwrap_or_else(errors::strange_answer),
        },
        Ok(Value::ServerError(error)) => errors::call(&error).0,
        Ok(_) => errors::strange_answer(),
    })
}

/// Lock records in a Redis server.
///
/// It connects when it is opened and again, on the next call, whenever the connection broke. It
/// never sends anything twice.
#[derive(Debug)]
pub struct RedisStore {
    manager: ConnectionManager,
    replicas: Replicas,
    mutex: Script,
    renewals: RenewScript,
    announce: Script,
    /// Arms it, if it is one of many masters.
    master: Option<Script>,
}

impl RedisStore {
    /// Connects to the server that a URL names, for programs that want this store and no other.
    /// See [`open`](super::open) for the URLs.
    ///
    /// # Errors
    ///
    /// As for [`open`](super::open).
    pub async fn open(url: &str, options: &OpenOptions) -> Result<Self> {
        Self::connect(target(deployment(url, options)?, options)?, options).await
    }

    async fn connect(target: Target, options: &OpenOptions) -> Result<Self> {
        let manager =
            ConnectionManager::new(target, options.connect_timeout, options.response_timeout);
        let store = Self {
            replicas: Replicas::beside(&manager),
            manager,
            mutex: Script::new(MUTEX),
            renewals: RenewScript::new(),
            announce: Script::new(ANNOUNCE),
            master: None,
        };
        store.greet().await?;
        Ok(store)
    }

    /// How many script calls this store has sent: tells what an acquisition costs.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.mutex.calls() + self.renewals.calls() + self.announce.calls()
    }

    /// An empty batch: proves that the server is there, lets us in and knows the script.
    async fn greet(&self) -> Result<()> {
        if let Err(error) = greet(&self.manager, &self.mutex).await {
            if error.kind() == ErrorKind::Unsupported
                && let Some(masters) = self.watched_there().await
            {
                return Err(errors::sentinel(&masters).at_store(self));
            }
            return Err(error.at_store(self));
        }
        // Whoever may connect may say hello. A server before 6.0 does not know it, and one that does not
        // answer now is for those who ask it something.
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

    /// The masters that the server watches, if it is a sentinel.
    async fn watched_there(&self) -> Option<Vec<String>> {
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
        let replicated = |request: &Request| request.durability.is_replicated();
        let mut replies = match batch.iter().filter(|request| replicated(request)).count() {
            0 => self.apply_plain(&batch).await,
            count if count == batch.len() => self.apply_replicated(&batch).await,
            _ => self.apply_mixed(&batch).await,
        };
        // Should answers be missing, nothing is known of their requests.
        replies.resize(batch.len(), Reply::Unknown(errors::strange_answer()));
        for (reply, request) in replies.iter_mut().zip(&batch) {
            self.name_error(reply, request);
        }
        replies
    }

    /// Applies requests that wait for replicas beside those that do not.
    async fn apply_mixed(&self, batch: &[Request]) -> Vec<Reply> {
        let (replicated, plain): (Vec<_>, Vec<_>) = batch
            .iter()
            .cloned()
            .partition(|request| request.durability.is_replicated());
        let (mut replicated, mut plain) = {
            let both = tokio::join!(self.apply_replicated(&replicated), self.apply_plain(&plain));
            (both.0.into_iter(), both.1.into_iter())
        };
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
        let answers = self
            .manager
            .exchange_settled(Duration::ZERO, |session| async move {
                let mut connection = session.connection.clone();
                let replies = self.ask(&mut connection, requests, self.queued()).await?;
                Ok((replies, session))
            })
            .await;
        self.answered(&self.manager, requests, answers)
    }

    /// Applies requests whose grants and renewals count when replicas have them.
    async fn apply_replicated(&self, requests: &[Request]) -> Vec<Reply> {
        let mut ready = self.replicas.look_for(requests).await;
        // A waiter is notified over the other connection.
        if ready.is_ok() && requests.iter().any(Request::acquires) {
            ready = self.manager.settled().await.map(drop);
        }
        if let Err(error) = ready {
            return vec![Reply::Rejected(error); requests.len()];
        }
        let (manager, _turn) = self.replicas.turn().await;
        // Whoever had the turn before may have given up with the server still waiting, and a script that
        // it does not know is waited for, too.
        let time = Waits::of(requests).time().saturating_mul(3);
        let answers = manager
            .exchange_settled(time, |session| async move {
                let mut line = self.replicas.line(session.connection.clone(), requests);
                let mut replies = self.ask(&mut line, requests, self.queued()).await?;
                line.waited().judge(requests, &mut replies);
                Ok((replies, session))
            })
            .await;
        self.answered(manager, requests, answers)
    }

    fn queued(&self) -> bool {
        let notifications = self.manager.notifications();
        notifications.wakeup_mode() == WakeupMode::Grants && !notifications.queueless()
    }

    /// Takes in what came of requests.
    fn answered(
        &self,
        manager: &ConnectionManager,
        requests: &[Request],
        answers: Result<(Vec<Reply>, Arc<Session>), Trouble>,
    ) -> Vec<Reply> {
        match answers {
            Err(Trouble::NotSent(error)) => vec![Reply::Rejected(error); requests.len()],
            Err(Trouble::Unanswered(error)) => vec![Reply::Unknown(error); requests.len()],
            Ok((mut replies, session)) => {
                manager.mind_demotion(&session, &mut replies);
                session.subscriptions.note(requests, &replies);
                self.tell_own(requests, &replies);
                replies
            }
        }
    }

    /// Applies requests by the rule, and what are renewals and nothing else by the short way first. Nobody
    /// acquires anything who cannot be notified.
    async fn ask(
        &self,
        connection: &mut impl Executor,
        requests: &[Request],
        queued: bool,
    ) -> RedisResult<Vec<Reply>> {
        let denied = self.manager.notifications().denied();
        let denied = denied.filter(|_| requests.iter().any(Request::acquires));
        let mut replies = match denied {
            Some(error) => {
                let reply = || Reply::Rejected(error.clone());
                let requests = requests.iter();
                requests
                    .map(|request| request.acquires().then(reply))
                    .collect()
            }
            None if self.renewals.suit(requests) => self.renewals.ask(connection, requests).await?,
            None => return self.ask_rule(connection, requests, queued).await,
        };
        let left = requests.iter().zip(&replies);
        let left: Vec<_> = left
            .filter(|(_, reply)| reply.is_none())
            .map(|(request, _)| request.clone())
            .collect();
        if !left.is_empty() {
            let mut answers = self.ask_rule(connection, &left, queued).await?.into_iter();
            for reply in replies.iter_mut().filter(|reply| reply.is_none()) {
                *reply = answers.next();
            }
        }
        let unknown = || Reply::Unknown(errors::strange_answer());
        let replies = replies.into_iter();
        Ok(replies.map(|reply| reply.unwrap_or_else(unknown)).collect())
    }

    async fn ask_rule(
        &self,
        connection: &mut impl Executor,
        requests: &[Request],
        queued: bool,
    ) -> RedisResult<Vec<Reply>> {
        // One admission record stands for all of a call.
        let master = self.master.is_some();
        let alike = |a: &Request, b: &Request| !master || a.key.space == b.key.space;
        let parts = requests.chunk_by(alike);
        let parts: Vec<_> = parts.flat_map(|part| part.chunks(REQUESTS_MAX)).collect();
        let terms = CallOptions {
            queued,
            master,
            ..CallOptions::default()
        };
        let encode = |verb: &str, script: &str, part: &&_| codec::encode(verb, script, part, terms);
        let answers = self.mutex.call_all(connection, &parts, encode).await?;
        let replies = parts.into_iter().zip(answers);
        Ok(replies
            .flat_map(|(part, answer)| codec::decode(part, answer))
            .collect())
    }

    /// Tells those who wait or hold here what came over our own connection: of that the server does not
    /// tell us.
    fn tell_own(&self, requests: &[Request], replies: &[Reply]) {
        let notifications = self.manager.notifications();
        for (request, reply) in requests.iter().zip(replies) {
            let Reply::Applied { outcome, .. } = reply else {
                continue;
            };
            let freed = match outcome {
                Outcome::Revoked { cut_off } => cut_off.is_some(),
                // A queue would have passed it on.
                Outcome::Released { count: 0 } => notifications.queueless(),
                _ => false,
            };
            if freed {
                notifications.tell_change(&request.key);
            }
        }
    }

    /// Says of an error which lock and store it is about.
    fn name_error(&self, reply: &mut Reply, request: &Request) {
        if let Reply::Rejected(error) | Reply::Unknown(error) = reply {
            *error = error.clone().for_lock(&request.key.name).at_store(self);
        }
    }

    async fn announce_client(
        &self,
        space: &Keyspace,
        client: ClientId,
        about: &About,
        ttl: Duration,
    ) -> Result<()> {
        let key = ClientKey(space, client).to_string();
        let cmd = |verb: &str, script: &str| client_info(verb, script, &key, about, ttl);
        let answer = self
            .manager
            .exchange(
                |mut connection| async move { self.announce.call(&mut connection, cmd).await },
            )
            .await;
        let answered = match answer {
            Err(Trouble::NotSent(error) | Trouble::Unanswered(error)) => Err(error),
            Ok(answer) => announced(&key, answer),
        };
        answered.map_err(|error| error.at_store(self))
    }
}

impl fmt::Display for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.manager.target().fmt(f)
    }
}

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

    fn wakeup_mode(&self) -> WakeupMode {
        self.manager.notifications().wakeup_mode()
    }

    fn has_replicas(&self) -> bool {
        true
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

    fn announce<'a>(
        &'a self,
        space: &'a Keyspace,
        client: ClientId,
        about: &'a About,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.announce_client(space, client, about, ttl))
    }
}
