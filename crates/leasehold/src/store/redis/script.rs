//! Calls scripts, and applies requests with those of the rule: renewals by the fast path, the rest by the rule
//! itself.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold_core::{Op, Outcome, Ttl};
use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisResult, Script as Hashed, Value};

use super::codec::{self, Renewal, RuleCall};
use super::connection_manager::ConnectionManager;
use super::errors;
use super::notifications::Notifications;
use crate::Result;
use crate::store::api::{Key, Reply, Request};

/// The rule. The comment at its top describes every key and the wire format.
pub(super) const MUTEX: &str = include_str!("scripts/mutex.lua");

/// The script of the fast path for batches of renewals, at a third of the cost.
pub(super) const RENEW: &str = include_str!("scripts/renew.lua");

/// The number of requests in one call of a script.
///
/// The server does nothing else during a call: 256 requests take about a millisecond. Larger calls are hardly
/// cheaper per request.
pub(super) const REQUESTS_MAX: usize = 256;

/// How long continuations may delay a reply, not counting the last call. The next request for the lock
/// continues with the rest.
const CONTINUED_MAX: Duration = Duration::from_millis(250);

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
            renew: RenewScript {
                script: Script::new(RENEW),
                fast_path: FastPath::default(),
            },
            one_of_many,
        }
    }

    /// The number of script calls sent so far.
    pub(super) fn calls(&self) -> u64 {
        self.mutex.calls() + self.renew.script.calls()
    }

    /// Applies requests, and returns one reply per request. A batch of only renewals uses the fast path first;
    /// the rule applies the requests that have no reply yet.
    ///
    /// A client that cannot be notified acquires nothing. `unfinished` receives the keys with waiters left
    /// to pass over.
    pub(super) async fn apply(
        &self,
        connection: &mut (impl ConnectionLike + Send),
        requests: &[Request],
        notifications: &Notifications,
        unfinished: &mut Vec<Key>,
    ) -> RedisResult<Vec<Reply>> {
        let denied = |request| notifications.denied(request).map(Reply::Rejected);
        let mut replies = Vec::new();
        if self.renew.fast_path.suits(requests.iter()) {
            replies = self.renew.apply(connection, requests).await?;
        } else if requests.iter().any(|request| denied(request).is_some()) {
            replies = requests.iter().map(denied).collect();
        }
        let mut open = Cow::Borrowed(requests);
        if !replies.is_empty() {
            let requests = requests.iter().zip(&replies);
            let requests = requests.filter(|(_, reply)| reply.is_none());
            open = requests.map(|(request, _)| request.clone()).collect();
        }
        // A call names one admission record, so its requests are of one keyspace.
        let together = |a: &Request, b: &Request| !self.one_of_many || a.key.space == b.key.space;
        let parts = open.chunk_by(together);
        let parts = parts.flat_map(|part| part.chunks(REQUESTS_MAX));
        let calls = parts.map(|requests| RuleCall {
            queued: notifications.queues(),
            master: self.one_of_many,
            ..RuleCall::new(requests)
        });
        let calls: Vec<_> = calls.collect();
        let values = self.mutex.call(connection, &calls, codec::encode).await?;
        let mut ruled = Vec::with_capacity(open.len());
        for (call, value) in calls.iter().zip(values) {
            unfinished.extend(unfinished_keys(&value, call.requests));
            ruled.extend(codec::decode(call.requests, value));
        }
        if replies.is_empty() {
            return Ok(ruled);
        }
        let mut ruled = ruled.into_iter();
        let unknown = || Reply::Unknown(errors::invalid_reply());
        let replies = replies.into_iter();
        Ok(replies
            .map(|reply| reply.or_else(|| ruled.next()).unwrap_or_else(unknown))
            .collect())
    }
}

/// The script for renewals of one server.
#[derive(Debug)]
pub(super) struct RenewScript {
    script: Script,
    fast_path: FastPath,
}

/// Whether the script for renewals is used.
#[derive(Debug, Default)]
pub(super) struct FastPath {
    off: AtomicBool,
}

impl FastPath {
    /// Whether it can apply these requests: all are renewals without a hold count.
    pub(super) fn suits<'a>(&self, mut requests: impl Iterator<Item = &'a Request>) -> bool {
        requests.all(|request| matches!(request.op, Op::Renew { count: None, .. }))
            && !self.off.load(Ordering::Relaxed)
    }

    /// Turns it off if a command of the script was refused.
    pub(super) fn note(&self, reply: &Value) {
        if let Value::Array(words) = reply
            && let Some(Value::BulkString(_)) = words.first()
            && !self.off.swap(true, Ordering::Relaxed)
        {
            tracing::debug!(?reply, "renewals use the rule");
        }
    }
}

impl RenewScript {
    /// Applies the renewals that the script can. Those without a reply afterwards need the rule.
    pub(super) async fn apply(
        &self,
        connection: &mut (impl ConnectionLike + Send),
        batch: &[Request],
    ) -> RedisResult<Vec<Option<Reply>>> {
        let mut groups = BTreeMap::<Ttl, Vec<Renewal<'_>>>::new();
        for (position, request) in batch.iter().enumerate() {
            if let Op::Renew {
                lease,
                ttl,
                count: None,
            } = request.op
            {
                let group = groups.entry(ttl).or_default();
                group.push((position, &request.key, lease));
            }
        }
        let parts: Vec<_> = groups
            .iter()
            .flat_map(|(ttl, group)| group.chunks(REQUESTS_MAX).map(move |part| (*ttl, part)))
            .collect();
        let values = self
            .script
            .call(connection, &parts, codec::encode_renewals)
            .await?;
        let mut replies = vec![None; batch.len()];
        for ((_, part), value) in parts.iter().zip(&values) {
            let Some((now, open)) = codec::decode_renewals(value) else {
                self.fast_path.note(value);
                continue;
            };
            for (nth, (position, ..)) in part.iter().enumerate() {
                if !open.contains(&nth) {
                    let now = Some(now);
                    let outcome = Outcome::Kept;
                    replies[*position] = Some(Reply::Applied { outcome, now });
                }
            }
        }
        Ok(replies)
    }
}

/// A script, with a counter of its calls.
#[derive(Debug)]
pub(super) struct Script {
    text: &'static str,
    hash: String,
    calls: AtomicU64,
    /// How many calls were sent again because the server did not know the script.
    resent: AtomicU64,
}

impl Script {
    pub(super) fn new(text: &'static str) -> Self {
        Self {
            text,
            hash: Hashed::new(text).get_hash().to_owned(),
            calls: AtomicU64::new(0),
            resent: AtomicU64::new(0),
        }
    }

    /// The number of calls sent so far.
    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// The number of calls that were sent again, and so perhaps behind later ones.
    pub(super) fn resent(&self) -> u64 {
        self.resent.load(Ordering::Relaxed)
    }

    /// Calls the script once for each part, in one round trip. `encode` makes a call from a verb, the script and a
    /// part: the script is its hash after `EVALSHA`, and its text after `EVAL`, which also loads it.
    pub(super) async fn call<P>(
        &self,
        connection: &mut (impl ConnectionLike + Send),
        parts: &[P],
        encode: impl Fn(&str, &str, &P) -> Cmd,
    ) -> RedisResult<Vec<Value>> {
        match parts {
            [] => return Ok(Vec::new()),
            [part] => {
                self.count(1);
                let hashed = encode("EVALSHA", &self.hash, part);
                let reply = connection.req_packed_command(&hashed).await?;
                if !is_unknown_script(&reply) {
                    return Ok(vec![reply]);
                }
                self.resent.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
        // By its text, so that no call has to be repeated behind later ones. The text is small compared with
        // the arguments.
        let mut pipeline = Pipeline::with_capacity(parts.len());
        for part in parts {
            pipeline.add_command(encode("EVAL", self.text, part));
        }
        let count = pipeline.len();
        self.count(count);
        connection.req_packed_commands(&pipeline, 0, count).await
    }

    /// Calls the script once, alone.
    pub(super) async fn call_at<P: Sync>(
        &self,
        manager: &ConnectionManager,
        part: &P,
        encode: impl Fn(&str, &str, &P) -> Cmd + Send,
    ) -> Result<Value> {
        let called = manager.exchange(Duration::ZERO, |mut connection| async move {
            let parts = std::slice::from_ref(part);
            self.call(&mut connection, parts, encode).await
        });
        Ok(called.await?.pop().unwrap_or(Value::Nil))
    }

    /// The verb and the script of a call, which counts as sent.
    pub(super) fn verb(&self, by_text: bool) -> (&'static str, &str) {
        self.count(1);
        match by_text {
            true => ("EVAL", self.text),
            false => ("EVALSHA", &self.hash),
        }
    }

    fn count(&self, calls: usize) {
        self.calls.fetch_add(calls as u64, Ordering::Relaxed);
    }
}

/// Whether a call was refused because the server does not know its script.
pub(super) fn is_unknown_script(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "NOSCRIPT")
}

/// Applies an empty batch, which proves that the server responds, accepts us and can run the rule.
pub(super) async fn greet(manager: &ConnectionManager, mutex: &Script) -> Result<()> {
    let greeting = RuleCall::new(&[]);
    Err(
        match mutex.call_at(manager, &greeting, codec::encode).await? {
            Value::Array(reply) => match reply.as_slice() {
                [Value::Int(_)] => return Ok(()),
                _ => codec::failed_command("", &Value::Array(reply))
                    .unwrap_or_else(errors::invalid_reply),
            },
            Value::ServerError(error) => errors::call(&error).0,
            _ => errors::invalid_reply(),
        },
    )
}

/// Passes over the dead waiters that a call has left for these keys. In a cluster, the keys are in one slot.
///
/// One call passes over a limited number of dead waiters, as the server does nothing else meanwhile. The
/// replies of the first call are final.
pub(super) async fn continue_passing(
    manager: &ConnectionManager,
    script: &Script,
    mut keys: Vec<Key>,
) {
    let start = Instant::now();
    let node = manager.notifications().node();
    while !keys.is_empty() && start.elapsed() < CONTINUED_MAX {
        let call = (&*keys, node);
        let continued = script.call_at(manager, &call, codec::encode_continue);
        let Ok(reply) = continued.await else {
            return;
        };
        keys = unfinished(&reply, keys.iter());
    }
}

/// The keys for which a call of these requests has left dead waiters.
pub(super) fn unfinished_keys(reply: &Value, requests: &[Request]) -> Vec<Key> {
    unfinished(reply, requests.iter().map(|request| &request.key))
}

/// The keys for which a call has left dead waiters, of the `keys` of its operations in order.
fn unfinished<'a>(reply: &Value, keys: impl ExactSizeIterator<Item = &'a Key> + Clone) -> Vec<Key> {
    let Value::Array(items) = reply else {
        return Vec::new();
    };
    let numbers = items.iter().skip(1 + 2 * keys.len());
    let unfinished = numbers.filter_map(|number| match number {
        Value::Int(number) => keys
            .clone()
            .nth(usize::try_from(number.checked_sub(1)?).ok()?),
        _ => None,
    });
    unfinished.cloned().collect()
}

/// Notifies local clients of the changes that their own requests made: the server does not send these over
/// the connection that caused them.
pub(super) fn notify_local(notifications: &Notifications, requests: &[Request], replies: &[Reply]) {
    for (request, reply) in requests.iter().zip(replies) {
        let Reply::Applied { outcome, .. } = reply else {
            continue;
        };
        let freed = match outcome {
            Outcome::Revoked(leases) => !leases.is_empty(),
            // A queue would have granted it to its head.
            Outcome::Released => notifications.queueless(),
            _ => false,
        };
        if freed {
            notifications.notify_changed(&request.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::api::fixture;

    #[test]
    fn a_reply_names_what_is_unfinished() {
        let keys = ["a", "b"].map(fixture::key);
        let named = |numbers: &[i64]| {
            let items = [7, 4, 0, 4, 0].iter().chain(numbers);
            let reply = Value::Array(items.map(|number| Value::Int(*number)).collect());
            unfinished(&reply, keys.iter())
        };
        assert_eq!(named(&[]), []);
        assert_eq!(named(&[2]), keys[1..]);
        assert_eq!(named(&[1, 2]), keys);
        assert_eq!(named(&[0, 3, -1, i64::MIN]), []);
        assert_eq!(unfinished(&Value::Nil, keys.iter()), []);
    }
}
