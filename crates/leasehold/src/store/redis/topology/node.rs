//! A server that takes calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant as StdInstant};

use leasehold_core::Op;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value, cmd};
use tokio::time::Instant;

use super::call::{Call, CallResult, CallResults};
use super::waits::Waits;
use crate::store::api::{Request, Shard};
use crate::store::redis::address::HostPort;
use crate::store::redis::errors;
use crate::store::redis::link::connection_manager::ConnectionManager;
use crate::store::redis::link::session::Session;
use crate::store::redis::link::tracking::START;
use crate::store::redis::wire::decode::{failed_command, unfinished};
use crate::store::redis::wire::encode::{self, CallContext};
use crate::store::redis::wire::script::{Script, is_unknown_script};
use crate::{Error, Result};

/// The number of attempts for a server that does not know a script. The second loads it; the third is for a
/// server that has forgotten it meanwhile.
const PASSES: usize = 3;

/// How long continuations may delay a reply, not counting the last call. The next request for the lock
/// continues with the rest.
const CONTINUED_MAX: Duration = Duration::from_millis(250);

/// A server with a connection.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) manager: ConnectionManager,
    /// How often calls were sent again because the server did not know their script, and so perhaps behind later ones.
    resent: AtomicU64,
}

impl Node {
    pub(crate) fn new(manager: ConnectionManager) -> Self {
        Self {
            manager,
            resent: AtomicU64::new(0),
        }
    }

    pub(crate) fn resent(&self) -> u64 {
        self.resent.load(Ordering::Relaxed)
    }

    /// Makes calls over the connection, which is opened first if needed. With `waits`, their replies follow after
    /// acknowledgements of replicas.
    pub(crate) async fn call(&self, calls: Vec<Call>, waits: Option<&mut Waits>) -> CallResults {
        self.retry_denied(&calls);
        // The server may still be waiting for the previous batch, whose caller may have given up, and a
        // repeated call by the text of the script waits again.
        let longer = waits.as_ref().map(|waits| waits.time().saturating_mul(3));
        let is_settled = calls.iter().any(Call::is_settled);
        let session = self
            .manager
            .session(longer.unwrap_or_default(), is_settled)
            .await;
        match session {
            Ok((session, deadline)) => self.deliver(&session, deadline, calls, waits).await,
            Err(error) => {
                let calls = calls.into_iter();
                let result = |call| (call, CallResult::NotApplied(error.clone()));
                calls.map(result).collect()
            }
        }
    }

    /// Repeats the subscriptions that these calls need and that were denied.
    pub(crate) fn retry_denied(&self, calls: &[Call]) {
        for call in calls {
            self.manager.notifications().retry_denied(&call.requests);
        }
    }

    /// Makes calls over an open connection.
    pub(crate) async fn deliver(
        &self,
        session: &Arc<Session>,
        deadline: Instant,
        calls: Vec<Call>,
        waits: Option<&mut Waits>,
    ) -> CallResults {
        // A client that cannot be notified acquires nothing.
        let why_denied = |request: &Request| self.manager.notifications().denied(request);
        let (mut results, mut allowed) = (Vec::new(), Vec::new());
        let calls = calls.into_iter();
        for call in calls.flat_map(|call| call.without_denied(why_denied)) {
            match call.requests.first().and_then(why_denied) {
                Some(error) => results.push((call, CallResult::NotApplied(error))),
                None => allowed.push(call),
            }
        }
        if allowed.is_empty() {
            return results;
        }
        let sent = self.send(session, &allowed, waits);
        match self.manager.await_reply(session, deadline, sent).await {
            Err(error) => {
                let calls = allowed.into_iter();
                results.extend(calls.map(|call| (call, CallResult::NoReply(error.clone()))));
            }
            Ok(values) => {
                for (call, value) in allowed.iter().zip(&values) {
                    self.continue_passing(call, value).await;
                }
                let calls = allowed.into_iter().zip(values);
                let replied = |value| CallResult::Replied(value, Arc::clone(session));
                results.extend(calls.map(|(call, value)| (call, replied(value))));
            }
        }
        results
    }

    /// Sends calls in one round trip, and returns their replies.
    ///
    /// A call that was refused because the server does not know its script is repeated, behind one that loads it.
    async fn send(
        &self,
        session: &Session,
        calls: &[Call],
        mut waits: Option<&mut Waits>,
    ) -> RedisResult<Vec<Value>> {
        let context = self.context();
        let mut replies = vec![Value::Nil; calls.len()];
        let mut open: Vec<usize> = (0..calls.len()).collect();
        for pass in 0..PASSES {
            if open.is_empty() {
                break;
            }
            let mut pipeline = Pipeline::with_capacity(open.len());
            let mut positions = Vec::with_capacity(open.len());
            let mut loaded = Vec::new();
            for nth in &open {
                let call = &calls[*nth];
                if call.asking {
                    pipeline.add_command(cmd("ASKING"));
                }
                if call.tracked && session.subscriptions.tracking.is_on() {
                    pipeline.cmd(START[0]).arg(&START[1..]);
                }
                let is_loaded = loaded.contains(&call.script());
                loaded.push(call.script());
                let by_text = pass > 1 || pass == 1 && !is_loaded;
                positions.push(pipeline.len());
                pipeline.add_command(call.command(by_text, &context));
            }
            let first_wait = pipeline.len();
            if let Some(waits) = waits.as_deref_mut() {
                waits.add_to(&mut pipeline);
            }
            let count = pipeline.len();
            let mut connection = session.connection.clone();
            let mut received = connection.send_packed_commands(&pipeline, 0, count).await?;
            if let Some(waits) = waits.as_deref_mut() {
                waits.take(received.split_off(first_wait.min(received.len())));
            }
            for (nth, position) in open.iter().zip(positions) {
                if let Some(reply) = received.get_mut(position) {
                    replies[*nth] = std::mem::replace(reply, Value::Nil);
                }
            }
            open.retain(|nth| is_unknown_script(&replies[*nth]));
            if pass == 0 && !open.is_empty() {
                self.resent.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(replies)
    }

    fn context(&self) -> CallContext<'_> {
        let notifications = self.manager.notifications();
        CallContext {
            queued: notifications.queues(),
            node: notifications.node(),
            record_only: false,
            master: notifications.queueless,
        }
    }

    /// Calls a script by itself. `encode` makes the call by its text, or else by its hash.
    pub(crate) async fn call_script(&self, encode: impl Fn(bool) -> Cmd + Send) -> Result<Value> {
        let call = |mut connection: MultiplexedConnection| async move {
            let reply = connection.send_packed_command(&encode(false)).await?;
            if !is_unknown_script(&reply) {
                return Ok(reply);
            }
            self.resent.fetch_add(1, Ordering::Relaxed);
            connection.send_packed_command(&encode(true)).await
        };
        self.manager.exchange(Duration::ZERO, call).await
    }

    /// Applies an empty batch, which proves that the server responds, accepts us and can run the rule.
    pub(crate) async fn greet(&self) -> Result<()> {
        let greeting =
            |by_text| encode::encode(Script::Mutex, &[], by_text, &CallContext::default());
        Err(match self.call_script(greeting).await? {
            Value::Array(reply) => match reply.as_slice() {
                [Value::Int(_)] => return Ok(()),
                pair => failed_command("", pair).unwrap_or_else(errors::invalid_reply),
            },
            Value::ServerError(error) => errors::call(&error).0,
            _ => errors::invalid_reply(),
        })
    }

    /// Passes over the dead waiters that a call has left.
    ///
    /// One call passes over a limited number of dead waiters, as the server does nothing else meanwhile. The
    /// replies of the first call are final.
    async fn continue_passing(&self, call: &Call, value: &Value) {
        // While a slot is migrated, missing keys cannot be named here.
        let (Some(script), false) = (call.script(), call.asking) else {
            return;
        };
        let left = |requests: &[Request], value: &Value| -> Vec<_> {
            let keys = unfinished(requests, value).into_iter();
            keys.map(|key| Request::new(key.clone(), Op::Serve))
                .collect()
        };
        let start = StdInstant::now();
        let mut requests = left(&call.requests, value);
        while !requests.is_empty() && start.elapsed() < CONTINUED_MAX {
            let context = self.context();
            let serve = |by_text| encode::encode(script, &requests, by_text, &context);
            let Ok(reply) = self.call_script(serve).await else {
                return;
            };
            requests = left(&requests, &reply);
        }
    }
}

/// A node of a cluster.
#[derive(Debug)]
pub(crate) struct ClusterNode {
    pub(crate) addr: HostPort,
    pub(crate) shard: Shard,
    pub(crate) server: Arc<Node>,
    /// Whether the last call failed.
    pub(super) doubtful: AtomicBool,
}

impl ClusterNode {
    /// Its id in the cluster.
    pub(crate) fn id(&self) -> &str {
        self.server.manager.notifications().node()
    }

    pub(crate) fn is_doubtful(&self) -> bool {
        self.doubtful.load(Ordering::Relaxed)
    }

    /// Records whether the last call failed.
    pub(crate) fn set_doubtful(&self, doubtful: bool) {
        self.doubtful.store(doubtful, Ordering::Relaxed);
    }

    /// Proves that it responds, accepts us and can run the rule.
    pub(crate) async fn greet(&self) -> Result<()> {
        let greeted = self.server.greet().await;
        self.set_doubtful(greeted.is_err());
        greeted.map_err(|error: Error| error.at_store(self.server.manager.target()))
    }
}
