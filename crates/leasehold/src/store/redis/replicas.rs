//! Requests that count when replicas have what came of them.
//!
//! `WAIT` keeps the connection on which it is sent from everything else, so these requests have one of
//! their own, which is made when it is first needed. It is sent right behind the scripts, in one
//! piece with them: it answers how many replicas have all that was written on this connection.
//!
//! What was not acknowledged has been done all the same. So the answer is that nobody knows: a grant is
//! given back by who asked, and a renewal has failed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold_core::{Op, Outcome};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value, cmd};

use super::connection::{Link, Trouble};
use super::errors;
use super::script::Line;
use crate::store::{Reply, Request};
use crate::{Durability, Error, ErrorKind, ReplicaCount, Result};

/// The connection for such requests, and what is known of the replicas.
#[derive(Debug)]
pub(super) struct Replicas {
    pub(super) link: Link,
    /// The most that were ever there at once.
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
    pub(super) fn new(link: Link) -> Self {
        Self {
            link,
            seen: AtomicU32::new(0),
        }
    }

    /// Whether the server lets us wait, and has as many replicas as that takes.
    pub(super) async fn check(&self, count: ReplicaCount) -> Result<()> {
        let look = |mut connection: MultiplexedConnection| async move {
            connection.send_packed_command(&look()).await
        };
        let there = match self.link.exchange(look).await {
            Err(Trouble::NotSent(error) | Trouble::Unanswered(error)) => return Err(error),
            Ok(Value::ServerError(error)) => return Err(refused(&error)),
            Ok(answer) => self.note(&answer).ok_or_else(errors::strange_answer)?,
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

    /// A line on which what these requests ask for is waited for.
    pub(super) fn line(
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

    /// Takes in how many replicas there are at least.
    fn note(&self, answer: &Value) -> Option<u32> {
        let Value::Int(there) = answer else {
            return None;
        };
        let there = u32::try_from(*there).ok()?;
        self.seen.fetch_max(there, Ordering::Relaxed);
        Some(there)
    }
}

impl Waits {
    /// What these requests have to wait for: releases wait for nothing.
    pub(super) fn of(requests: &[Request]) -> Self {
        let waits = requests.iter().filter_map(|request| match request.op {
            Op::Acquire { .. } | Op::Enter { .. } | Op::Renew { .. } | Op::Fence { .. } => {
                Some((key(request.durability)?, None))
            }
            Op::Release { .. } | Op::Revoke => None,
        });
        Self(waits.collect())
    }

    /// How long that may take.
    pub(super) fn time(&self) -> Duration {
        let times = self.0.keys().map(|(timeout, wanted)| match wanted {
            Wanted::Number(_) => *timeout,
            // It may turn out that there are more.
            Wanted::All => timeout.saturating_mul(2),
        });
        times.fold(Duration::ZERO, Duration::saturating_add)
    }

    /// Says of what was not acknowledged that nobody knows.
    pub(super) fn judge(&self, requests: &[Request], replies: &mut [Reply]) {
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
    /// Waits for those replicas, too, that have turned out to be there, and answers what came of all.
    pub(super) async fn waited(mut self) -> RedisResult<Waits> {
        for ((timeout, wanted), waited) in &mut self.waits.0 {
            let needed = self.replicas.needed(*wanted);
            if let Some(waited) = waited
                && waited.asked < needed
            {
                let wait = wait(needed, *timeout);
                waited.answer = self.connection.send_packed_command(&wait).await?;
                waited.asked = needed;
            }
        }
        Ok(self.waits)
    }

    /// Sends calls, and behind them what they have to wait for.
    async fn send(&mut self, calls: Pipeline) -> RedisResult<Vec<Value>> {
        let all = self
            .waits
            .0
            .keys()
            .any(|(_, wanted)| *wanted == Wanted::All);
        let mut pipeline = Pipeline::new();
        if all {
            pipeline.add_command(look());
        }
        let count = calls.len();
        for call in calls.cmd_iter() {
            pipeline.add_command(call.clone());
        }
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
        if all && let Some(there) = answers.next() {
            self.replicas.note(&there);
        }
        let called = answers.by_ref().take(count).collect();
        for ((waited, asked), answer) in self.waits.0.values_mut().zip(asked).zip(answers) {
            self.replicas.note(&answer);
            *waited = Some(Waited { asked, answer });
        }
        Ok(called)
    }
}

impl Line for Acknowledged<'_> {
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

/// Asks how many replicas have what was written on this connection, without waiting: on a new one, how
/// many are online.
fn look() -> Cmd {
    wait(0, Duration::from_millis(1))
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
