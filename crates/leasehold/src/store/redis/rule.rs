//! Applies requests with the scripts of the rule: renewals by the fast path, the rest by the rule itself.

use leasehold_core::Outcome;
use redis::{RedisResult, Value};

use super::codec::{self, CallOptions, REQUESTS_MAX};
use super::connection_manager::{ConnectionManager, ExchangeError};
use super::continuation;
use super::errors;
use super::notifications::Notifications;
use super::renew_script::RenewScript;
use super::script::{Executor, Script};
use crate::Result;
use crate::store::api::{Key, Reply, Request, WakeupMode};

/// The rule. The comment at its top describes every key and the wire format.
pub(super) const MUTEX: &str = include_str!("scripts/mutex.lua");

/// The scripts of one server.
#[derive(Debug)]
pub(super) struct RuleScripts {
    pub(super) mutex: Script,
    pub(super) renew: RenewScript,
    /// Whether the server is one of many masters.
    one_of_many: bool,
}

impl RuleScripts {
    pub(super) fn new(one_of_many: bool) -> Self {
        Self {
            mutex: Script::new(MUTEX),
            renew: RenewScript::new(),
            one_of_many,
        }
    }

    /// The number of script calls sent so far.
    pub(super) fn calls(&self) -> u64 {
        self.mutex.calls() + self.renew.calls()
    }

    /// Applies requests, and returns one reply per request. A batch of only renewals uses the fast path first;
    /// the rule applies the requests that have no reply yet.
    ///
    /// A client that cannot be notified acquires nothing. `unfinished` receives the keys with waiters left
    /// to pass over.
    pub(super) async fn apply(
        &self,
        connection: &mut impl Executor,
        requests: &[Request],
        notifications: &Notifications,
        unfinished: &mut Vec<Key>,
    ) -> RedisResult<Vec<Reply>> {
        let denied = |request| notifications.denied(request).map(Reply::Rejected);
        let mut replies: Vec<_> = requests.iter().map(denied).collect();
        if replies.iter().all(Option::is_none) && self.renew.suits(requests) {
            replies = self.renew.apply(connection, requests).await?;
        }
        if replies.iter().all(Option::is_none) {
            let ruled = self.apply_rule(connection, requests, notifications, unfinished);
            return ruled.await;
        }
        let open = requests.iter().zip(&replies);
        let open: Vec<_> = open
            .filter(|(_, reply)| reply.is_none())
            .map(|(request, _)| request.clone())
            .collect();
        let ruled = match open.is_empty() {
            true => Vec::new(),
            false => {
                self.apply_rule(connection, &open, notifications, unfinished)
                    .await?
            }
        };
        let mut ruled = ruled.into_iter();
        let unknown = || Reply::Unknown(errors::strange_answer());
        let replies = replies.into_iter();
        Ok(replies
            .map(|reply| reply.or_else(|| ruled.next()).unwrap_or_else(unknown))
            .collect())
    }

    async fn apply_rule(
        &self,
        connection: &mut impl Executor,
        requests: &[Request],
        notifications: &Notifications,
        unfinished: &mut Vec<Key>,
    ) -> RedisResult<Vec<Reply>> {
        // A call names one admission record, so its requests are of one keyspace.
        let together = |a: &Request, b: &Request| !self.one_of_many || a.key.space == b.key.space;
        let parts = requests.chunk_by(together);
        let parts: Vec<_> = parts.flat_map(|part| part.chunks(REQUESTS_MAX)).collect();
        let options = CallOptions {
            queued: notifications.wakeup_mode() == WakeupMode::Grants && !notifications.queueless(),
            master: self.one_of_many,
            ..CallOptions::default()
        };
        let encode =
            |verb: &str, script: &str, part: &&_| codec::encode(verb, script, part, options);
        let answers = self.mutex.call_all(connection, &parts, encode).await?;
        let mut replies = Vec::with_capacity(requests.len());
        for (part, answer) in parts.into_iter().zip(answers) {
            let keys = part.iter().map(|request| &request.key);
            unfinished.extend(continuation::unfinished(&answer, keys));
            replies.extend(codec::decode(part, answer));
        }
        Ok(replies)
    }
}

/// Applies an empty batch, which proves that the server responds, accepts us and can run the rule.
pub(super) async fn greet(manager: &ConnectionManager, mutex: &Script) -> Result<()> {
    let cmd = |verb: &str, script: &str| codec::encode(verb, script, &[], CallOptions::default());
    let answer = manager
        .exchange(|mut connection| async move { mutex.call(&mut connection, cmd).await })
        .await;
    Err(match answer {
        Err(ExchangeError::NotSent(error) | ExchangeError::Unanswered(error)) => error,
        Ok(Value::Array(answer)) => match answer.as_slice() {
            [Value::Int(_)] => return Ok(()),
            _ => codec::failed_command("", &Value::Array(answer))
                .unwrap_or_else(errors::strange_answer),
        },
        Ok(Value::ServerError(error)) => errors::call(&error).0,
        Ok(_) => errors::strange_answer(),
    })
}

/// Notifies local clients of the changes that their own requests made: the server does not send these over
/// the connection that caused them.
pub(super) fn notify_local(notifications: &Notifications, requests: &[Request], replies: &[Reply]) {
    for (request, reply) in requests.iter().zip(replies) {
        let Reply::Applied { outcome, .. } = reply else {
            continue;
        };
        let freed = match outcome {
            Outcome::Revoked { cut_off } => cut_off.is_some(),
            // A queue would have granted it to its head.
            Outcome::Released { count: 0 } => notifications.queueless(),
            _ => false,
        };
        if freed {
            notifications.notify_changed(&request.key);
        }
    }
}
