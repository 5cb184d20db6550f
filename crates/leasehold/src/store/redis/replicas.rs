//! Requests that take effect when replicas have acknowledged them.
//!
//! `WAIT` blocks its connection, so these requests have a connection of their own, which is opened on first
//! use. `WAIT` is sent right behind the scripts, in one piece with them: it returns the number of replicas
//! that have everything that was written on this connection.
//!
//! There is one batch at a time on it, so that none waits longer than its own timeout.
//!
//! `WAIT` counts the replicas that have everything up to the last command on its connection. So replicas are
//! counted on a third connection: the first time by waiting a while for more than there can be, later
//! without waiting, as replicas report themselves once a second.
//!
//! A change that was not acknowledged was still made. So its reply is unknown: the client releases a grant,
//! and a renewal has failed.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold_core::time::in_units;
use leasehold_core::{Op, Outcome};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisFuture, RedisResult, Value, cmd};
use tokio::sync::{Mutex, MutexGuard};

use super::connection_manager::ConnectionManager;
use super::errors;
use crate::store::api::{Reply, Request};
use crate::{Durability, Error, ErrorKind, ReplicaCount, Result};

/// The maximum age of the last count of the replicas.
const COUNT_AGE_MAX: Duration = Duration::from_secs(2);

/// How long the first count waits, and the check of a durability.
const FIRST_COUNT: Duration = Duration::from_millis(500);

/// More replicas than any server has.
const MANY: u32 = 1_000_000;

/// The connections for such requests, and the number of replicas.
#[derive(Debug)]
pub(super) struct Replicas {
    manager: ConnectionManager,
    turn: Mutex<()>,
    counter: ConnectionManager,
    last_count: Mutex<Option<Instant>>,
    /// The largest number of replicas at once so far.
    most: AtomicU32,
}

/// The acknowledgements that a batch needs, the shortest timeout first.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits(Vec<Wait>);

#[derive(Clone, Debug)]
struct Wait {
    count: ReplicaCount,
    timeout: Duration,
    /// The number of replicas that `WAIT` was sent for, and its reply.
    waited: Option<(u32, Value)>,
}

/// A connection that sends calls together with the `WAIT`s of a batch.
pub(super) struct Acknowledged<'a> {
    connection: MultiplexedConnection,
    replicas: &'a Replicas,
    waits: Waits,
}

impl Replicas {
    /// The replicas of the server of a connection.
    pub(super) fn beside(manager: &ConnectionManager) -> Self {
        Self {
            manager: manager.another(),
            turn: Mutex::default(),
            counter: manager.another(),
            last_count: Mutex::default(),
            most: AtomicU32::new(0),
        }
    }

    /// The connection, exclusively.
    pub(super) async fn turn(&self) -> (&ConnectionManager, MutexGuard<'_, ()>) {
        (&self.manager, self.turn.lock().await)
    }

    /// Counts the replicas, if these requests need all of them and the last count is too old.
    pub(super) async fn count_for(&self, requests: &[Request]) -> Result<()> {
        let mut counts = requests.iter().map(|request| request.durability.count());
        if counts.all(|count| count != Some(ReplicaCount::All)) {
            return Ok(());
        }
        let mut last = self.last_count.lock().await;
        if last.is_none_or(|last| last.elapsed() >= COUNT_AGE_MAX) {
            match *last {
                None => self.count(MANY, FIRST_COUNT).await?,
                Some(_) => self.count(0, Duration::from_millis(1)).await?,
            };
            *last = Some(Instant::now());
        }
        Ok(())
    }

    /// The number of replicas, after waiting for `count` of them.
    async fn count(&self, count: u32, timeout: Duration) -> Result<u32> {
        let wait = wait(count, timeout);
        let wait = |mut connection: MultiplexedConnection| async move {
            connection.send_packed_command(&wait).await
        };
        let there = match self.counter.exchange(timeout, wait).await? {
            Value::ServerError(error) => return Err(refused(&error)),
            Value::Int(there) => u32::try_from(there).unwrap_or(0),
            _ => return Err(errors::invalid_reply()),
        };
        self.most.fetch_max(there, Ordering::Relaxed);
        Ok(there)
    }

    /// Checks that the server allows `WAIT` and has enough replicas.
    pub(super) async fn check(&self, count: ReplicaCount) -> Result<()> {
        let there = match count {
            ReplicaCount::Number(number) => self.count(number.get(), FIRST_COUNT).await?,
            ReplicaCount::All => {
                let mut last = self.last_count.lock().await;
                let there = self.count(MANY, FIRST_COUNT).await?;
                *last = Some(Instant::now());
                there
            }
        };
        let message = match count {
            ReplicaCount::All if there == 0 => {
                "the server has no replica that is online, and all must acknowledge; connect replicas, or \
                 require fewer".to_owned()
            }
            ReplicaCount::Number(number) if there < number.get() => {
                let replicas = match there {
                    1 => "1 replica that is online".to_owned(),
                    _ => format!("{there} replicas that are online"),
                };
                format!(
                    "the server has {replicas}, and {number} must acknowledge; connect replicas, or require fewer"
                )
            }
            _ => return Ok(()),
        };
        Err(Error::new(ErrorKind::NotReplicated, message))
    }

    /// A connection on which each call waits for what these requests need.
    pub(super) fn acknowledged(
        &self,
        connection: MultiplexedConnection,
        requests: &[Request],
    ) -> Acknowledged<'_> {
        Acknowledged {
            connection,
            replicas: self,
            waits: Waits::of(requests),
        }
    }

    fn needed(&self, count: ReplicaCount) -> u32 {
        match count {
            ReplicaCount::Number(number) => number.get(),
            ReplicaCount::All => self.most.load(Ordering::Relaxed).max(1),
        }
    }
}

impl Waits {
    /// The acknowledgements that these requests need. Releases need none.
    pub(super) fn of(requests: &[Request]) -> Self {
        let mut waits = Vec::<Wait>::new();
        for request in requests {
            let Durability::Replicas { count, timeout } = request.durability else {
                continue;
            };
            let released = matches!(request.op, Op::Release { .. } | Op::Revoke(_));
            if !released && !waits.iter().any(|wait| wait.is_for(count, timeout)) {
                waits.push(Wait {
                    count,
                    timeout,
                    waited: None,
                });
            }
        }
        waits.sort_by_key(|wait| wait.timeout);
        Self(waits)
    }

    /// The sum of the timeouts.
    pub(super) fn time(&self) -> Duration {
        let times = self.0.iter().map(|wait| wait.timeout);
        times.fold(Duration::ZERO, Duration::saturating_add)
    }

    /// Makes the reply of each change unknown that was not acknowledged.
    pub(super) fn check(&self, requests: &[Request], replies: &mut [Reply]) {
        for (reply, request) in replies.iter_mut().zip(requests) {
            let (
                Ok(Outcome::Granted { .. } | Outcome::Kept | Outcome::Stored),
                Durability::Replicas { count, timeout },
            ) = (reply.outcome(), request.durability)
            else {
                continue;
            };
            let wait = self.0.iter().find(|wait| wait.is_for(count, timeout));
            if let Err(error) = wait.map_or_else(|| Err(errors::invalid_reply()), Wait::check) {
                *reply = Reply::Unknown(error);
            }
        }
    }
}

impl Wait {
    fn is_for(&self, count: ReplicaCount, timeout: Duration) -> bool {
        (self.count, self.timeout) == (count, timeout)
    }

    fn check(&self) -> Result<()> {
        match &self.waited {
            Some((needed, Value::Int(there))) => {
                if u32::try_from(*there).is_ok_and(|there| there >= *needed) {
                    return Ok(());
                }
                let timeout = in_units(self.timeout);
                let message = format!("{there} of {needed} replicas acknowledged within {timeout}");
                Err(Error::new(ErrorKind::NotReplicated, message))
            }
            Some((_, Value::ServerError(error))) => Err(refused(error)),
            _ => Err(errors::invalid_reply()),
        }
    }
}

impl Acknowledged<'_> {
    /// The acknowledgements with their results.
    pub(super) fn into_waits(self) -> Waits {
        self.waits
    }

    /// Sends calls, and the `WAIT`s behind them.
    async fn send(&mut self, mut pipeline: Pipeline) -> RedisResult<Vec<Value>> {
        let count = pipeline.len();
        let mut needs = Vec::with_capacity(self.waits.0.len());
        for waiting in &self.waits.0 {
            let needed = self.replicas.needed(waiting.count);
            pipeline.add_command(wait(needed, waiting.timeout));
            needs.push(needed);
        }
        let length = pipeline.len();
        let mut replies = self
            .connection
            .send_packed_commands(&pipeline, 0, length)
            .await?
            .into_iter();
        let called = replies.by_ref().take(count).collect();
        for ((wait, needed), reply) in self.waits.0.iter_mut().zip(needs).zip(replies) {
            wait.waited = Some((needed, reply));
        }
        Ok(called)
    }
}

impl ConnectionLike for Acknowledged<'_> {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let mut calls = Pipeline::with_capacity(1);
            calls.add_command(cmd.clone());
            let reply = self.send(calls).await?.pop();
            // The client library ensures as many replies as commands.
            Ok(reply.unwrap_or(Value::Nil))
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        calls: &'a Pipeline,
        _offset: usize,
        _count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(self.send(calls.clone()))
    }

    fn get_db(&self) -> i64 {
        self.connection.get_db()
    }
}

fn wait(replicas: u32, timeout: Duration) -> Cmd {
    // 0 would mean no timeout.
    let millis = u64::try_from(timeout.as_millis())
        .unwrap_or(u64::MAX)
        .max(1);
    let mut wait = cmd("WAIT");
    wait.arg(replicas).arg(millis);
    wait
}

fn refused(error: &redis::ServerError) -> Error {
    let described = errors::command_error("WAIT", "", error);
    match described.kind() {
        ErrorKind::Unauthorized => {
            let message =
                format!("the user may not wait for replicas; allow it with +wait: {described}");
            Error::new(ErrorKind::Unauthorized, message).with_source(described)
        }
        _ => described,
    }
}
