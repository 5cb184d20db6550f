//! Reads the replies to calls of scripts.

use leasehold_core::record::{Kind, LeaseKind, Run};
use leasehold_core::{
    Acquire, Claim, LatchCount, LatchStatus, LeaseId, Loss, Mismatch, Op, Outcome, StoreTime, Token,
};
use redis::Value;

use super::encode::is_plain;
use super::keys::record_key;
use super::note;
use super::reply::{parsed, text, time_left};
use super::script::Script;
use crate::Error;
use crate::store::api::{Key, Reply, Request};
use crate::store::redis::errors;

/// What the reply of a server says of a request.
#[derive(Clone, Debug)]
pub(crate) struct Decoded {
    /// `None`: it was certainly not applied, and needs the rule, or its key is at another node.
    pub(crate) reply: Option<Reply>,
    pub(crate) remark: Option<Remark>,
}

/// What the reply of a script says of a request beside its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remark {
    /// Its record is of another script, to which it is left.
    Elsewhere,
    /// It is of another kind than its name, which is that of a lock whose first waiters may have to be served.
    WaitedFor,
    /// It has renewed permits of a semaphore.
    RenewedPermits,
}

impl From<Reply> for Decoded {
    fn from(reply: Reply) -> Self {
        Self {
            reply: Some(reply),
            remark: None,
        }
    }
}

/// Decodes the reply of a script, for each request. An invalid part leaves only its own request unknown.
pub(crate) fn decode(script: Script, requests: &[Request], value: &Value) -> Vec<Decoded> {
    match (script, value) {
        (Script::Renew | Script::RenewShares, _) => {
            let remark = (script == Script::RenewShares).then_some(Remark::RenewedPermits);
            let replies = decode_renewals(requests.len(), value).into_iter();
            replies.map(|reply| Decoded { reply, remark }).collect()
        }
        (_, Value::Array(items)) => decode_items(script, requests, items),
        (_, Value::ServerError(error)) => {
            let (error, certain) = errors::call(error);
            let reply = match certain {
                true => Reply::Rejected(error),
                false => Reply::Unknown(error),
            };
            vec![Decoded::from(reply); requests.len()]
        }
        _ => decode_plain(requests, value),
    }
}

/// The key of each request of a call that has left dead waiters.
pub(crate) fn unfinished<'a>(requests: &'a [Request], value: &Value) -> Vec<&'a Key> {
    let items = value.as_sequence().unwrap_or_default();
    let numbers = items.iter().skip(1 + 2 * requests.len());
    let unfinished = numbers.filter_map(|number| match number {
        Value::Int(number) => requests.get(usize::try_from(number.checked_sub(1)?).ok()?),
        _ => None,
    });
    unfinished.map(|request| &request.key).collect()
}

/// The word of an outcome, as the comments at the tops of the scripts list them. Empty if it is none.
fn word(value: &Value) -> &str {
    match value {
        Value::BulkString(word) => str::from_utf8(word).unwrap_or_default(),
        _ => "",
    }
}

/// The outcome of an operation that is left to another script.
const ELSEWHERE: &str = "elsewhere";

fn invalid() -> Reply {
    Reply::Unknown(errors::invalid_reply())
}

/// The time, an outcome and a value for each request, and the numbers of those that are unfinished.
fn decode_items(script: Script, requests: &[Request], items: &[Value]) -> Vec<Decoded> {
    let now = match items {
        [Value::Int(micros), ..] => u64::try_from(*micros).ok(),
        // The first command of the script was refused.
        [Value::BulkString(_), ..] => {
            let error = |request: &Request| {
                let key = record_key(&request.key);
                failed_command(&key, items).map_or_else(invalid, Reply::Rejected)
            };
            return requests
                .iter()
                .map(|request| Decoded::from(error(request)))
                .collect();
        }
        _ => None,
    };
    let results = items.get(1..1 + 2 * requests.len());
    let (Some(now), Some(results), true) = (now, results, items.len() <= 1 + 3 * requests.len())
    else {
        return vec![Decoded::from(invalid()); requests.len()];
    };
    // A latch has no time.
    let now = (now > 0).then(|| StoreTime::from_micros(now));
    let results = requests.iter().zip(results.chunks_exact(2));
    let decoded = results.map(|(request, result)| {
        let (word, value) = (word(&result[0]), &result[1]);
        let reply = match word {
            // The request was not applied.
            ELSEWHERE => None,
            "failed" => match failed(value) {
                // A key that an earlier operation has deleted cannot be created again at this node.
                Some((words, _)) if words.contains("non local key") => None,
                failed => Some(failed.map_or_else(invalid, |(_, error)| Reply::Rejected(error))),
            },
            word => {
                let outcome = outcome(&request.op, word, value);
                Some(outcome.map_or_else(invalid, |outcome| Reply::Applied { outcome, now }))
            }
        };
        let remark = remark(script, word, value);
        Decoded { reply, remark }
    });
    decoded.collect()
}

fn remark(script: Script, word: &str, value: &Value) -> Option<Remark> {
    match (script, word, value) {
        (Script::Mutex | Script::Shares, ELSEWHERE, _) => Some(Remark::Elsewhere),
        (Script::Latch | Script::Shares, "mismatch", found) => {
            let is_waited_for = text(found).is_some_and(|found| found.ends_with("queue"));
            is_waited_for.then_some(Remark::WaitedFor)
        }
        (Script::Shares, "renewed", Value::Int(1)) => Some(Remark::RenewedPermits),
        _ => None,
    }
}

/// The replies if all operations were plain: the proposal is the token of each acquisition, or without one the time.
fn decode_plain(requests: &[Request], value: &Value) -> Vec<Decoded> {
    let now = parsed(value).map(StoreTime::from_micros);
    let is_valid = now.is_some() || *value == Value::Nil;
    let outcome = |op: &Op| match op {
        Op::Acquire(request) if is_plain(request) => {
            let proposal = request.proposal.filter(|_| request.claim == Claim::Mutex);
            let first = proposal.or(Token::new(now?.as_micros()))?;
            Some(Outcome::granted(first))
        }
        Op::Release {
            rest: None,
            note: None,
            ..
        } => Some(Outcome::Released),
        _ => None,
    };
    let replies = requests.iter().map(|request| {
        let outcome = outcome(&request.op).filter(|_| is_valid);
        Decoded::from(outcome.map_or_else(invalid, |outcome| Reply::Applied { outcome, now }))
    });
    replies.collect()
}

/// The time of the server, and the numbers of what was not renewed. An invalid reply renews nothing.
fn decode_renewals(count: usize, value: &Value) -> Vec<Option<Reply>> {
    let number = |item: &Value| match item {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    };
    let items = value.as_sequence().unwrap_or_default();
    let numbers: Option<Vec<_>> = items.iter().map(number).collect();
    let positions = 1..=count as u64;
    let valid = numbers.as_deref().and_then(|numbers| numbers.split_first());
    let valid = valid.filter(|(_, open)| open.iter().all(|nth| positions.contains(nth)));
    let Some((now, open)) = valid else {
        return vec![None; count];
    };
    let kept = Reply::Applied {
        outcome: Outcome::Kept,
        now: Some(StoreTime::from_micros(*now)),
    };
    let reply = |nth: u64| (!open.contains(&nth)).then(|| kept.clone());
    positions.map(reply).collect()
}

/// The outcome of an operation by its word and value. `None` if they do not match it.
fn outcome(op: &Op, word: &str, value: &Value) -> Option<Outcome> {
    let number = || match value {
        Value::Int(number) => Some(*number),
        _ => None,
    };
    match (word, op) {
        ("mismatch", op) => mismatched(op, value).map(Outcome::Mismatch),
        ("granted", Op::Acquire(_) | Op::Convert { .. }) => granted(op, value),
        ("complete", Op::Acquire(request)) if request.unless.is_some() => {
            note::parse(value).map(Outcome::Complete)
        }
        ("refused", Op::Acquire(Acquire { wait, .. }) | Op::Convert { wait, .. }) => {
            refused(*wait, value)
        }
        ("exhausted", Op::Acquire(_) | Op::Convert { .. } | Op::SetToken { .. }) => {
            Some(Outcome::Exhausted)
        }
        ("renewed", Op::Renew { .. }) => Some(Outcome::Kept),
        ("released", Op::Release { .. }) => Some(Outcome::Released),
        ("stored", Op::SetLimit { .. } | Op::SetToken { .. } | Op::WriteNote { .. }) => {
            Some(Outcome::Stored)
        }
        (
            "outdated",
            Op::Convert { .. } | Op::SetLimit { .. } | Op::SetToken { .. } | Op::WriteNote { .. },
        ) => Some(Outcome::Outdated),
        ("lost", Op::Serve) => Some(Outcome::Served),
        ("lost", Op::Acquire(_)) => None,
        ("lost", op) => op.lease().and(number()).map(|other| {
            Outcome::Lost(match other {
                0 => Loss::Free,
                _ => Loss::TakenOver,
            })
        }),
        ("revoked", Op::Revoke(_)) => {
            let leases = value.as_sequence().unwrap_or(std::slice::from_ref(value));
            let mut leases: Vec<_> = leases.iter().filter_map(parsed::<LeaseId>).collect();
            leases.sort_unstable();
            Some(Outcome::Revoked(leases))
        }
        ("arrived", Op::Arrive { .. }) => status_of(value.as_sequence()?).map(Outcome::Arrived),
        ("removed", Op::Remove(_)) => Some(Outcome::Removed(number()? > 0)),
        _ => None,
    }
}

/// A refusal: the time left of the holder, and for a lease that waits its position. 0: the lock is free for others that
/// wait.
fn refused(wait: bool, value: &Value) -> Option<Outcome> {
    let (millis, queue_position) = match (value, value.as_sequence()) {
        (Value::Int(millis), _) => (*millis, None),
        (_, Some([Value::Int(millis), Value::Int(position)])) if wait => {
            (*millis, Some(u32::try_from(*position).ok()?))
        }
        _ => return None,
    };
    Some(Outcome::Refused {
        time_left: (millis != 0).then(|| time_left(millis)),
        queue_position,
    })
}

/// A grant: its first token, and with a run or a number also those.
fn granted(op: &Op, value: &Value) -> Option<Outcome> {
    let token = |first: &i64| Token::new(u64::try_from(*first).ok()?);
    let has_run = matches!(op, Op::Acquire(request) if request.unless.is_some());
    if let Value::Int(first) = value {
        return token(first).map(Outcome::granted);
    }
    let [Value::Int(first), requested_at, last, numbered @ ..] = value.as_sequence()? else {
        return None;
    };
    let numbered = match numbered {
        [] => None,
        [Value::Int(number), Value::Int(floor)] => {
            Some((u32::try_from(*number).ok()?, token(floor)?))
        }
        _ => return None,
    };
    let run = match requested_at {
        Value::Nil => None,
        requested_at if has_run => Some(Run {
            requested_at: StoreTime::from_micros(parsed(requested_at)?),
            last: match last {
                Value::Nil => None,
                last => Some(note::parse(last)?),
            },
        }),
        _ => return None,
    };
    Some(Outcome::Granted {
        first: token(first)?,
        number: numbered.map(|(number, _)| number),
        floor: numbered.map(|(_, floor)| floor),
        run,
    })
}

/// The arrivals and the count of a latch.
fn status_of(parts: &[Value]) -> Option<LatchStatus> {
    let [Value::Int(arrived), Value::Int(count)] = parts else {
        return None;
    };
    let [arrived, count] = [*arrived, *count].map(|it| u32::try_from(it).ok());
    let count = LatchCount::new(count?)?.get();
    let arrived = arrived.filter(|arrived| (1..=count).contains(arrived))?;
    Some(LatchStatus { arrived, count })
}

/// The status of a latch in the first field of its hash. `None` if the value is not one of this library.
pub(crate) fn latch_status(value: &Value) -> Option<LatchStatus> {
    let Value::BulkString(value) = value else {
        return None;
    };
    let value = str::from_utf8(value).ok()?;
    let (arrived, count) = value.strip_prefix("latch ")?.split_once(' ')?;
    let [arrived, count] = [arrived, count].map(|number| number.parse().map(Value::Int));
    let status = status_of(&[arrived.ok()?, count.ok()?])?;
    // A number has one spelling.
    (value == format!("latch {} {}", status.arrived, status.count)).then_some(status)
}

/// How a name is used: as another kind, or as a latch with another count.
fn mismatched(op: &Op, value: &Value) -> Option<Mismatch> {
    let claim = match op {
        Op::Acquire(Acquire { claim, .. }) | Op::Convert { claim, .. } => Some(*claim),
        _ => None,
    };
    let leases = |kind| Some(Mismatch::Kind(Kind::Leases(kind)));
    match (op, claim, value) {
        (Op::Arrive { count, .. }, _, Value::Int(stored)) => Some(Mismatch::Count {
            stored: u32::try_from(*stored).ok()?,
            requested: count.get(),
        }),
        (_, Some(Claim::Permits { limit, .. }), Value::Int(stored)) => Some(Mismatch::Limit {
            stored: u64::try_from(*stored).ok()?,
            requested: u64::from(limit.get()),
        }),
        _ => match &*text(value)? {
            "latch" => Some(Mismatch::Kind(Kind::Latch)),
            "lock" | "queue" => leases(LeaseKind::Mutex),
            "semaphore" | "semaphore queue" => leases(LeaseKind::Semaphore),
            "rwlock" | "rwlock queue" => leases(LeaseKind::RwLock),
            "weight" => Some(Mismatch::Weight),
            "conversion" => Some(Mismatch::Conversion),
            _ => None,
        },
    }
}

/// The error in the `{command, error}` of a script, if it has that form.
pub(crate) fn failed_command(key: &str, pair: &[Value]) -> Option<Error> {
    match pair {
        [command, error] => Some(errors::command(&text(command)?, key, &text(error)?)),
        _ => None,
    }
}

/// The words and the error in the `{command, error, key}` of an operation, if it has that form.
fn failed(value: &Value) -> Option<(String, Error)> {
    let [command, words, key] = value.as_sequence()? else {
        return None;
    };
    let words = text(words)?;
    let error = errors::command(&text(command)?, &text(key)?, &words);
    Some((words, error))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::Ttl;

    use super::*;
    use crate::store::api::fixture;

    fn requests(ops: [Op; 3]) -> Vec<Request> {
        let named = ["a", "b", "c"].map(fixture::key).into_iter().zip(ops);
        named.map(|(key, op)| Request::new(key, op)).collect()
    }

    #[test]
    fn the_script_and_the_rule_keep_a_queue_for_the_same_time() {
        let ttl = Ttl::from_millis(7_000).unwrap();
        let retention = leasehold_core::record::queue::retention(ttl);
        assert_eq!(retention, 2 * ttl.as_duration() + Duration::from_secs(1));
        let script = Script::Mutex.text();
        assert!(script.contains("retention = run('PTTL', queue), 2 * ttl + 1000"));
    }

    #[test]
    fn a_reply_names_what_was_not_renewed() {
        let requests = requests([1, 2, 3].map(|n| Op::renew(fixture::lease(n), Ttl::MAX)));
        for (reply, renewed) in [
            ("*1\r\n:7\r\n", [true, true, true]),
            ("*3\r\n:7\r\n:1\r\n:3\r\n", [false, true, false]),
            ("*0\r\n", [false; 3]),
            ("*1\r\n:-1\r\n", [false; 3]),
            ("*2\r\n:7\r\n:-1\r\n", [false; 3]),
            ("*2\r\n:7\r\n:0\r\n", [false; 3]),
            ("*2\r\n:7\r\n_\r\n", [false; 3]),
            ("*2\r\n$9\r\nPEXPIREAT\r\n_\r\n", [false; 3]),
            ("_\r\n", [false; 3]),
        ] {
            let value = redis::parse_redis_value(reply.as_bytes()).unwrap();
            let replies = decode(Script::Renew, &requests, &value);
            let kept: Vec<_> = replies.iter().map(|it| it.reply.is_some()).collect();
            assert_eq!(kept, renewed, "{reply:?}");
        }
    }

    #[test]
    fn a_reply_names_what_is_unfinished() {
        let requests = requests([Op::Serve, Op::Serve, Op::Serve]);
        for (numbers, names) in [
            (&[][..], ""),
            (&[2], "b"),
            (&[1, 2], "ab"),
            (&[0, 4, -1, i64::MIN], ""),
        ] {
            let items = [7, 4, 0, 4, 0, 4, 0].iter().chain(numbers);
            let reply = Value::Array(items.map(|number| Value::Int(*number)).collect());
            let unfinished = unfinished(&requests, &reply).into_iter();
            let found: String = unfinished.map(|key| key.name.as_str()).collect();
            assert_eq!(found, names);
        }
        assert!(unfinished(&requests, &Value::Nil).is_empty());
    }
}
