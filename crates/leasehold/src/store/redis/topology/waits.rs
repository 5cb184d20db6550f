//! Acknowledgements of replicas that calls wait for.

use std::time::Duration;

use leasehold_core::time::in_units;
use leasehold_core::{Op, Outcome};
use redis::{Cmd, Pipeline, Value, cmd};

use crate::store::api::{Reply, Request};
use crate::store::redis::errors;
use crate::store::redis::wire::decode::Decoded;
use crate::{Durability, Error, ErrorKind, ReplicaCount, Result};

/// The acknowledgements that a batch needs, the shortest timeout first.
#[derive(Debug)]
pub(crate) struct Waits(Vec<Wait>);

#[derive(Debug)]
struct Wait {
    count: ReplicaCount,
    timeout: Duration,
    /// The number of replicas that `WAIT` is sent for.
    needed: u32,
    reply: Value,
}

impl Waits {
    /// Those that these requests need, of `all` replicas. Releases need none.
    pub(crate) fn of(requests: &[Request], all: u32) -> Self {
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
                    needed: match count {
                        ReplicaCount::Number(number) => number.get(),
                        ReplicaCount::All => all,
                    },
                    reply: Value::Nil,
                });
            }
        }
        waits.sort_by_key(|wait| wait.timeout);
        Self(waits)
    }

    /// The sum of the timeouts.
    pub(crate) fn time(&self) -> Duration {
        let times = self.0.iter().map(|wait| wait.timeout);
        times.fold(Duration::ZERO, Duration::saturating_add)
    }

    /// Adds a `WAIT` for each to the calls that they are for.
    pub(crate) fn add_to(&self, pipeline: &mut Pipeline) {
        for waiting in &self.0 {
            pipeline.add_command(wait(waiting.needed, waiting.timeout));
        }
    }

    /// Keeps the replies.
    pub(crate) fn take(&mut self, replies: Vec<Value>) {
        for (wait, reply) in self.0.iter_mut().zip(replies) {
            wait.reply = reply;
        }
    }

    /// Makes the reply of each change unknown that was not acknowledged.
    pub(crate) fn check(&self, requests: &[Request], decoded: &mut [Decoded]) {
        for (Decoded { reply, .. }, request) in decoded.iter_mut().zip(requests) {
            let (
                Some(Ok(Outcome::Granted { .. } | Outcome::Kept | Outcome::Stored)),
                Durability::Replicas { count, timeout },
            ) = (reply.as_ref().map(Reply::outcome), request.durability)
            else {
                continue;
            };
            let wait = self.0.iter().find(|wait| wait.is_for(count, timeout));
            if let Err(error) = wait.map_or_else(|| Err(errors::invalid_reply()), Wait::check) {
                *reply = Some(Reply::Unknown(error));
            }
        }
    }
}

impl Wait {
    fn is_for(&self, count: ReplicaCount, timeout: Duration) -> bool {
        (self.count, self.timeout) == (count, timeout)
    }

    fn check(&self) -> Result<()> {
        match &self.reply {
            Value::Int(there) if u32::try_from(*there).is_ok_and(|there| there >= self.needed) => {
                Ok(())
            }
            Value::Int(there) => {
                let (needed, timeout) = (self.needed, in_units(self.timeout));
                let message = format!("{there} of {needed} replicas acknowledged within {timeout}");
                Err(Error::new(ErrorKind::NotReplicated, message))
            }
            Value::ServerError(error) => Err(refused(error)),
            _ => Err(errors::invalid_reply()),
        }
    }
}

/// The command that waits for replicas.
pub(crate) fn wait(replicas: u32, timeout: Duration) -> Cmd {
    // 0 would mean no timeout.
    let millis = u64::try_from(timeout.as_millis())
        .unwrap_or(u64::MAX)
        .max(1);
    let mut wait = cmd("WAIT");
    wait.arg(replicas).arg(millis);
    wait
}

/// The error of the command.
pub(crate) fn refused(error: &redis::ServerError) -> Error {
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
