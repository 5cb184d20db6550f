//! Requests that count when replicas have what came of them.
//!
//! `WAIT` keeps the connection on which it is sent from everything else, so these requests have one of
//! their own, which is made when it is first needed. It is sent right behind the scripts, in one
//! piece with them: it answers how many replicas have all that was written on this connection.
//!
//! There is one batch at a time on it, so that none waits for what another asked for longer than it says.
//!
//! `WAIT` counts the replicas that have all that the server had done when it was last asked something
//! on that connection. So how many there are is asked on a third one: the first time by waiting a
//! while for more than there can be, later by not waiting at all, for they tell of themselves once a
//! second.
//!
//! What was not acknowledged has been done all the same. So the answer is that nobody knows: a grant is
//! given back by who asked, and a renewal has failed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold_core::{Op, Outcome};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value, cmd};
use tokio::sync::{Mutex, MutexGuard};

use super::connection_manager::{ConnectionManager, Trouble};
use super::errors;
use super::script::Executor;
use crate::store::api::{Reply, Request};
use crate::{Durability, Error, ErrorKind, ReplicaCount, Result};

/// How old the last look at the replicas may be.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How long the first look takes, and the longest that a number of them is waited for when it is
/// checked.
const FIRST_LOOK: Duration = Duration::from_millis(500);

/// More replicas than any server has.
const MANY: u32 = 1_000_000;

/// The connection for such requests, and what is known of the replicas.
#[derive(Debug)]
pub(super) struct Replicas {
    manager: ConnectionManager,
    turn: Mutex<()>,
    looks: ConnectionManager,
    last_look: Mutex<Option<Instant>>,
    /// The most that were ever seen at once.
    seen: AtomicU32,
}

/// What a batch has to wait for, and what came of it, by how long.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits(BTreeMap<(Duration, Wanted), Option<Waited>>);

/// A number of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wanted {
    Number(u32),
    All,
}

/// What came of waiting.
#[derive(Clone, Debug)]
struct Waited {
    asked: u32,
    answer: Value,
}

/// A connection on which each call is waited for.
pub(super) struct Acknowledged<'a> {
    connection: MultiplexedConnection,
    replicas: &'a Replicas,
    waits: Waits,
}

impl Replicas {
    /// Of the server to which this connection goes.
    pub(super) fn beside(manager: &ConnectionManager) -> Self {
        Self {
            manager: manager.another(),
            turn: Mutex::default(),
            looks: manager.another(),
            last_look: Mutex::default(),
            seen: AtomicU32::new(0),
        }
    }

    /// The connection, for as long as it is one's turn.
    pub(super) async fn turn(&self) -> (&ConnectionManager, MutexGuard<'_, ()>) {
        (&self.manager, self.turn.lock().await)
    }

    /// Looks how many replicas there are, if these requests ask for all and nobody has looked lately.
    pub(super) async fn count_for(&self, requests: &[Request]) -> Result<()> {
        let all = |request: &Request| {
            matches!(
                request.durability,
                Durability::Replicas {
                    count: ReplicaCount::All,
                    ..
                }
            )
        };
        if !requests.iter().any(all) {
            return Ok(());
        }
        let mut last = self.last_look.lock().await;
        if last.is_none_or(|last| last.elapsed() >= LOOK_EVERY) {
            match *last {
                None => self.look(MANY, FIRST_LOOK).await?,
                Some(_) => self.look(0, Duration::from_millis(1)).await?,
            };
            *last = Some(Instant::now());
        }
        Ok(())
    }

    /// How many replicas there are, when so many are waited for.
    async fn look(&self, count: u32, timeout: Duration) -> Result<u32> {
        let look = wait(count, timeout);
        let look = |mut connection: MultiplexedConnection| async move {
            connection.send_packed_command(&look).await
        };
        let there = match self.looks.exchange_longer(timeout, look).await {
            Err(Trouble::NotSent(error) | Trouble::Unanswered(error)) => return Err(error),
            Ok(Value::ServerError(error)) => return Err(refused(&error)),
            Ok(Value::Int(there)) => u32::try_from(there).unwrap_or(0),
            Ok(_) => return Err(errors::strange_answer()),
        };
        self.seen.fetch_max(there, Ordering::Relaxed);
        Ok(there)
    }

    /// Whether the server lets us wait, and has as many replicas as that takes.
    pub(super) async fn check(&self, count: ReplicaCount) -> Result<()> {
        let there = match count {
            ReplicaCount::Number(number) => self.look(number.get(), FIRST_LOOK).await?,
            ReplicaCount::All => {
                let mut last = self.last_look.lock().await;
                let there = self.look(MANY, FIRST_LOOK).await?;
                *last = Some(Instant::now());
                there
            }
        };
        let message = match count {
            ReplicaCount::All if there == 0 => {
                "the server has no replica that is online, and all must acknowledge".to_owned()
            }
            ReplicaCount::Number(number) if there < number.get() => {
                format!(
                    "the server has {there} replicas that are online, and {number} must acknowledge"
                )
            }
            _ => return Ok(()),
        };
        Err(Error::new(ErrorKind::NotReplicated, message))
    }

    /// Waits for what these requests need after each call.
    pub(super) fn executor(
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

    fn needed(&self, wanted: Wanted) -> u32 {
        match wanted {
            Wanted::Number(number) => number,
            Wanted::All => self.seen.load(Ordering::Relaxed).max(1),
        }
    }
}

impl Waits {
    /// What these requests have to wait for: releases wait for nothing.
    pub(super) fn of(requests: &[Request]) -> Self {
        let waits = requests.iter().filter_map(|request| match request.op {
            Op::Acquire { .. } | Op::Enter { .. } | Op::Renew { .. } | Op::SetToken { .. } => {
                Some((key(request.durability)?, None))
            }
            Op::Release { .. } | Op::Revoke => None,
        });
        Self(waits.collect())
    }

    /// How long that may take.
    pub(super) fn time(&self) -> Duration {
        let times = self.0.keys().map(|(timeout, _)| *timeout);
        times.fold(Duration::ZERO, Duration::saturating_add)
    }

    /// Says of what was not acknowledged that nobody knows.
    pub(super) fn check(&self, requests: &[Request], replies: &mut [Reply]) {
        for (reply, request) in replies.iter_mut().zip(requests) {
            let counts = matches!(
                reply,
                Reply::Applied {
                    outcome: Outcome::Granted { .. }
                        | Outcome::Entered { .. }
                        | Outcome::Renewed
                        | Outcome::Fenced,
                    ..
                }
            );
            let Some(key) = key(request.durability).filter(|_| counts) else {
                continue;
            };
            if let Err(error) = self.acknowledged(key) {
                *reply = Reply::Unknown(error);
            }
        }
    }

    fn acknowledged(&self, key: (Duration, Wanted)) -> Result<()> {
        let waited = self.0.get(&key).and_then(Option::as_ref);
        match waited {
            Some(Waited { asked, answer }) => match answer {
                Value::Int(there) if u32::try_from(*there).is_ok_and(|there| there >= *asked) => {
                    Ok(())
                }
                Value::Int(there) => {
                    let timeout = key.0;
                    let message =
                        format!("{there} of {asked} replicas acknowledged within {timeout:?}");
                    Err(Error::new(ErrorKind::NotReplicated, message))
                }
                Value::ServerError(error) => Err(refused(error)),
                _ => Err(errors::strange_answer()),
            },
            None => Err(errors::strange_answer()),
        }
    }
}

impl Acknowledged<'_> {
    /// What came of the waiting.
    pub(super) fn into_waits(self) -> Waits {
        self.waits
    }

    /// Sends calls, and behind them what they have to wait for.
    async fn send(&mut self, mut pipeline: Pipeline) -> RedisResult<Vec<Value>> {
        let count = pipeline.len();
        let mut asked = Vec::with_capacity(self.waits.0.len());
        for (timeout, wanted) in self.waits.0.keys() {
            let needed = self.replicas.needed(*wanted);
            pipeline.add_command(wait(needed, *timeout));
            asked.push(needed);
        }
        let length = pipeline.len();
        let mut answers = self
            .connection
            .send_packed_commands(&pipeline, 0, length)
            .await?
            .into_iter();
        let called = answers.by_ref().take(count).collect();
        for ((waited, asked), answer) in self.waits.0.values_mut().zip(asked).zip(answers) {
            *waited = Some(Waited { asked, answer });
        }
        Ok(called)
    }
}

impl Executor for Acknowledged<'_> {
    async fn one(&mut self, cmd: &Cmd) -> RedisResult<Value> {
        let mut calls = Pipeline::with_capacity(1);
        calls.add_command(cmd.clone());
        let answer = self.send(calls).await?.pop();
        // As many answers as commands: the client library sees to that.
        Ok(answer.unwrap_or(Value::Nil))
    }

    async fn all(&mut self, calls: Pipeline) -> RedisResult<Vec<Value>> {
        self.send(calls).await
    }
}

fn key(durability: Durability) -> Option<(Duration, Wanted)> {
    match durability {
        Durability::None => None,
        Durability::Replicas { count, timeout } => Some((
            timeout,
            match count {
                ReplicaCount::Number(number) => Wanted::Number(number.get()),
                ReplicaCount::All => Wanted::All,
            },
        )),
    }
}

fn wait(replicas: u32, timeout: Duration) -> Cmd {
    // Without a limit it would be 0.
    let millis = u64::try_from(timeout.as_millis())
        .unwrap_or(u64::MAX)
        .max(1);
    let mut wait = cmd("WAIT");
    wait.arg(replicas).arg(millis);
    wait
}

fn refused(error: &redis::ServerError) -> Error {
    let told = errors::command_error("WAIT", "", error);
    match told.kind() {
        ErrorKind::Unauthorized => {
            let message =
                format!("the user may not wait for replicas; allow it with +wait: {told}");
            Error::new(ErrorKind::Unauthorized, message).with_source(told)
        }
        _ => told,
    }
}
