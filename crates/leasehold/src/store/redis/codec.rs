//! Encodes requests as arguments of the scripts, and decodes their replies.

use std::fmt::{Arguments, Display, Write as _};
use std::time::Duration;

use leasehold_core::record::{Run, Unless};
use leasehold_core::{Acquire, LeaseId, Loss, NewNote, Op, Outcome, StoreTime, Token, Ttl, Whom};
use redis::{Cmd, RedisWrite, Value};

use super::annotations;
use super::errors;
use super::keys::{
    COUNTER_SUFFIX, QUEUE_SUFFIX, admission_key, note_suffix, record_bytes_max, record_key,
};
use crate::Error;
use crate::store::api::{Key, Reply, Request};

/// The largest number that a script writes with all its digits.
const EXACT_MAX: u128 = 1 << 53;

const KEYS_EACH: usize = 3;
const ARGS_EACH: usize = 4;

/// The bytes of the arguments of a request without its key: verb, lease, ttl and proposal.
const ARGS_BYTES: usize = 88;

/// The bytes of a lease and the space behind it, with a long number.
const LEASE_BYTES: usize = 44;

/// The bytes of the arguments of a renewal on the fast path without its names.
const RENEWAL_BYTES: usize = 20 + LEASE_BYTES;

// The reply codes of the script. The comment at its top lists them, too.
const LOST: i64 = 0;
const GRANTED: i64 = 1;
const REFUSED: i64 = 2;
const RENEWED: i64 = 3;
const RELEASED: i64 = 4;
const REVOKED: i64 = 5;
const EXHAUSTED: i64 = 6;
const FAILED: i64 = 7;
const STORED: i64 = 8;
const OUTDATED: i64 = 9;
const COMPLETE: i64 = 10;

/// A call of the script.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuleCall<'a> {
    pub(super) requests: &'a [Request],
    /// Whether the queue is used. If not, an acquisition that would wait is refused.
    pub(super) queued: bool,
    /// The id of the node of a cluster. Empty without a cluster.
    pub(super) node: &'a str,
    /// Whether only the record is declared, of a single request. In a slot that is being migrated to the node, a
    /// call is refused if one of its keys does not exist.
    pub(super) record_only: bool,
    /// Whether the server is one of many masters. Then all requests are of one namespace.
    pub(super) master: bool,
}

impl<'a> RuleCall<'a> {
    /// A call to one server, without its queue.
    pub(super) const fn new(requests: &'a [Request]) -> Self {
        Self {
            requests,
            queued: false,
            node: "",
            record_only: false,
            master: false,
        }
    }
}

/// Encodes a call of the script: `verb` is `EVALSHA` or `EVAL`, `script` its hash or text.
pub(super) fn encode(verb: &str, script: &str, call: &RuleCall<'_>) -> Cmd {
    let requests = call.requests;
    debug_assert!(!call.record_only || requests.len() == 1);
    let bytes: usize = requests.iter().map(|request| size(&request.key)).sum();
    let args = 3 + requests.len() * (KEYS_EACH + ARGS_EACH) + 1;
    let mut cmd = Cmd::with_capacity(args, script.len() + 16 + bytes);
    cmd.write_arg(verb.as_bytes());
    cmd.write_arg(script.as_bytes());
    let keys_each = if call.record_only { 1 } else { KEYS_EACH };
    let admission = requests.first().filter(|_| call.master);
    cmd.write_arg_fmt(requests.len() * keys_each + usize::from(admission.is_some()));
    for request in requests {
        match call.record_only {
            true => cmd.write_arg_fmt(record_key(&request.key)),
            false => write_keys(&mut cmd, &request.key),
        }
    }
    if let Some(request) = admission {
        cmd.write_arg_fmt(admission_key(request.key.space.namespace()));
    }
    for request in requests {
        encode_op(&mut cmd, request, call.queued);
    }
    if !call.node.is_empty() {
        cmd.write_arg(call.node.as_bytes());
    }
    cmd
}

/// Encodes a call that continues where an earlier one left dead waiters. `node` as in [`RuleCall`].
pub(super) fn encode_continue(verb: &str, script: &str, (keys, node): &(&[Key], &str)) -> Cmd {
    let mut cmd = Cmd::new();
    cmd.write_arg(verb.as_bytes());
    cmd.write_arg(script.as_bytes());
    cmd.write_arg_fmt(keys.len() * KEYS_EACH);
    for key in *keys {
        write_keys(&mut cmd, key);
    }
    for _ in *keys {
        cmd.arg(&["continue", "", ""]);
    }
    if !node.is_empty() {
        cmd.write_arg(node.as_bytes());
    }
    cmd
}

/// Decodes a reply of the script. Returns one reply per request.
///
/// An invalid part leaves only its own request unknown.
pub(super) fn decode(requests: &[Request], value: Value) -> Vec<Reply> {
    let strange = || Reply::Unknown(errors::invalid_reply());
    let all = |reply: Reply| vec![reply; requests.len()];
    let mut items = match value {
        Value::Array(items) => items.into_iter(),
        Value::Nil => return all_plain(requests, None),
        Value::BulkString(_) | Value::SimpleString(_) | Value::VerbatimString { .. } => {
            let now = text(&value).and_then(|now| now.parse().ok());
            return match now.map(StoreTime::from_micros) {
                Some(now) => all_plain(requests, Some(now)),
                None => all(strange()),
            };
        }
        Value::ServerError(error) => {
            let (error, certain) = errors::call(&error);
            return all(if certain {
                Reply::Rejected(error)
            } else {
                Reply::Unknown(error)
            });
        }
        _ => return all(strange()),
    };
    let now = match items.next() {
        Some(Value::Int(micros)) => u64::try_from(micros).ok(),
        // The first command of the script was refused.
        Some(Value::BulkString(command)) => {
            let text = items.next().as_ref().and_then(text).unwrap_or_default();
            let command = String::from_utf8_lossy(&command);
            let replies = requests.iter().map(|request| {
                let key = record_key(&request.key).to_string();
                Reply::Rejected(errors::command(&command, &key, &text))
            });
            return replies.collect();
        }
        _ => None,
    };
    let Some(now) = now.map(StoreTime::from_micros) else {
        return all(strange());
    };
    // The numbers of unfinished operations may follow.
    if !(requests.len() * 2..=requests.len() * 3).contains(&items.len()) {
        return all(strange());
    }
    let mut reply = |request: &Request| {
        let (Some(Value::Int(code)), Some(value)) = (items.next(), items.next()) else {
            return strange();
        };
        if code == FAILED {
            return failed(&value).map_or_else(strange, Reply::Rejected);
        }
        match outcome(&request.op, code, &value) {
            Some(outcome) => Reply::Applied {
                outcome,
                now: Some(now),
            },
            None => strange(),
        }
    };
    requests.iter().map(&mut reply).collect()
}

/// The replies if all operations were plain: the proposal is the token of each acquisition, or without one the time.
fn all_plain(requests: &[Request], now: Option<StoreTime>) -> Vec<Reply> {
    let outcome = |op: &Op| match op {
        Op::Acquire(request) if is_plain(request) => {
            let first = request.proposal.or(Token::new(now?.as_micros()))?;
            Some(Outcome::Granted { first, run: None })
        }
        Op::Release {
            rest: None,
            note: None,
            ..
        } => Some(Outcome::Released),
        _ => None,
    };
    let reply = |request: &Request| match outcome(&request.op) {
        Some(outcome) => Reply::Applied { outcome, now },
        None => Reply::Unknown(errors::invalid_reply()),
    };
    requests.iter().map(reply).collect()
}

/// Whether an acquisition is for one hold and one token, and for no run.
fn is_plain(request: &Acquire) -> bool {
    (request.count.get(), request.tokens.get()) == (1, 1) && request.unless.is_none()
}

/// A renewal of a batch: its position there, its record and its lease.
pub(super) type Renewal<'a> = (usize, &'a Key, LeaseId);

pub(super) fn encode_renewals(
    verb: &str,
    script: &str,
    (ttl, part): &(Ttl, &[Renewal<'_>]),
) -> Cmd {
    let bytes = part.len() * RENEWAL_BYTES + script.len();
    let mut cmd = Cmd::with_capacity(5 + part.len(), bytes);
    cmd.write_arg(verb.as_bytes());
    cmd.write_arg(script.as_bytes());
    cmd.write_arg_fmt(part.len());
    for (_, key, _) in *part {
        cmd.write_arg_fmt(record_key(key));
    }
    cmd.write_arg_fmt(ttl.as_millis());
    let mut leases = String::with_capacity(part.len() * LEASE_BYTES);
    for (nth, (_, _, lease)) in part.iter().enumerate() {
        let separator = if nth > 0 { " " } else { "" };
        // Writing to a string does not fail.
        let _ = write!(leases, "{separator}{lease}");
    }
    cmd.write_arg(leases.as_bytes());
    cmd
}

/// The time of the server, and the positions that were not renewed. `None` if the reply is invalid.
pub(super) fn decode_renewals(reply: &Value) -> Option<(StoreTime, Vec<usize>)> {
    let Value::Array(items) = reply else {
        return None;
    };
    let mut numbers = items.iter().map(|item| match item {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    });
    let now = StoreTime::from_micros(numbers.next()??);
    let open = numbers.map(|position| usize::try_from(position?.checked_sub(1)?).ok());
    Some((now, open.collect::<Option<_>>()?))
}

fn write_keys(cmd: &mut Cmd, key: &Key) {
    // Formatted once, as that takes longer than to copy it.
    let mut name = String::with_capacity(size(key) / KEYS_EACH);
    // Writing to a string does not fail.
    let _ = write!(name, "{}", record_key(key));
    let length = name.len();
    for suffix in ["", COUNTER_SUFFIX, QUEUE_SUFFIX] {
        name.truncate(length);
        name.push_str(suffix);
        cmd.write_arg(name.as_bytes());
    }
}

fn size(key: &Key) -> usize {
    let suffixes = COUNTER_SUFFIX.len() + QUEUE_SUFFIX.len();
    KEYS_EACH * record_bytes_max(key) + suffixes + ARGS_BYTES
}

fn encode_op(cmd: &mut Cmd, request: &Request, queued: bool) {
    let op = &request.op;
    let mut args = |verb: Arguments<'_>, lease: &dyn Display, ttl: &dyn Display| {
        cmd.write_arg_fmt(verb);
        cmd.write_arg_fmt(lease);
        cmd.write_arg_fmt(ttl);
    };
    match op {
        Op::Acquire(acquire) => encode_acquire(cmd, acquire, queued),
        Op::SetToken {
            lease,
            first,
            tokens,
        } => args(format_args!("fence {first} {tokens}"), lease, &""),
        Op::Renew { lease, ttl, count } => match count {
            Some(count) => args(format_args!("enter {count}"), lease, &ttl.as_millis()),
            None => args(format_args!("renew"), lease, &ttl.as_millis()),
        },
        Op::Release {
            lease,
            rest,
            note: Some(note),
        } => {
            args(format_args!("complete"), lease, &keep_millis(note.keep));
            write_note(cmd, *lease, note);
            match rest {
                Some(rest) => cmd.write_arg_fmt(rest.as_millis()),
                None => cmd.write_arg(b""),
            }
        }
        Op::Release { lease, rest, .. } => match rest {
            Some(rest) => args(format_args!("release_after"), lease, &rest.as_millis()),
            None => {
                cmd.write_arg(b"release");
                cmd.write_arg_fmt(lease);
            }
        },
        Op::WriteNote { lease, note } => {
            args(format_args!("note"), lease, &keep_millis(note.keep));
            write_note(cmd, *lease, note);
        }
        Op::Revoke(Whom::One(lease)) => args(format_args!("revoke"), lease, &""),
        Op::Revoke(Whom::All) => args(format_args!("revoke"), &"", &""),
        // `beside` applies the others.
        Op::Serve | Op::Arrive { .. } | Op::Remove(_) | Op::Describe { .. } => {
            args(format_args!("continue"), &"", &"");
        }
    }
}

fn encode_acquire(cmd: &mut Cmd, request: &Acquire, queued: bool) {
    let Acquire { count, tokens, .. } = request;
    let waits = request.wait && queued;
    let verb = if waits { "queue" } else { "acquire" };
    match (&request.unless, request.proposal) {
        (Some(unless), _) => {
            let condition = condition(unless);
            cmd.write_arg_fmt(format_args!("{verb} {tokens} {count} unless {condition}"));
        }
        (None, None) if is_plain(request) => cmd.write_arg(verb.as_bytes()),
        (None, None) => cmd.write_arg_fmt(format_args!("{verb} {tokens} {count}")),
        (None, Some(_)) if is_plain(request) => cmd.write_arg(b"propose"),
        (None, Some(proposal)) => {
            cmd.write_arg_fmt(format_args!("acquire {tokens} {count} {proposal}"));
        }
    }
    cmd.write_arg_fmt(request.lease);
    cmd.write_arg_fmt(request.ttl.as_millis());
    if let (None, Some(proposal), true) = (&request.unless, request.proposal, is_plain(request)) {
        cmd.write_arg_fmt(proposal);
    }
}

/// How long ago a run was asked for, and the condition that makes it needless.
fn condition(unless: &Unless) -> String {
    let micros = |span: Duration| span.as_micros().min(EXACT_MAX);
    let (asked, slot) = (micros(unless.asked()), unless.slot());
    let mut condition = format!("{asked} {}", note_suffix(&slot));
    if let Unless::Period { schedule, .. } = unless {
        let period = micros(schedule.period.as_duration());
        let anchor = schedule
            .anchor
            .map(|anchor| format!(" {}", anchor.as_micros()));
        condition.push_str(&format!(" {period}{}", anchor.unwrap_or_default()));
    }
    condition
}

fn write_note(cmd: &mut Cmd, lease: LeaseId, note: &NewNote) {
    let NewNote {
        token,
        number,
        text,
        ..
    } = note;
    cmd.write_arg_fmt(note_suffix(&note.slot));
    cmd.write_arg_fmt(format_args!("{lease} {token} {number} {text}"));
}

/// The time for which a note or a latch is kept in ms. Servers add it to their time in a number of 64 bits.
pub(super) fn keep_millis(keep: Duration) -> u128 {
    keep.as_micros().div_ceil(1_000).clamp(1, EXACT_MAX)
}

/// The outcome of an operation by its code and value. `None` if they do not match it.
fn outcome(op: &Op, code: i64, value: &Value) -> Option<Outcome> {
    let number = || match value {
        Value::Int(number) => Some(*number),
        _ => None,
    };
    match (code, op) {
        (GRANTED, Op::Acquire(request)) => {
            let (first, run) = match value {
                Value::Array(parts) if request.unless.is_some() => granted_run(parts)?,
                _ => (number()?, None),
            };
            let first = Token::new(u64::try_from(first).ok()?)?;
            Some(Outcome::Granted { first, run })
        }
        (COMPLETE, Op::Acquire(request)) if request.unless.is_some() => {
            annotations::parse(value).map(Outcome::Complete)
        }
        (REFUSED, Op::Acquire(Acquire { wait, .. })) => match value {
            Value::Int(millis) => Some(Outcome::Refused {
                time_left: refused_for(*millis),
                queue_position: None,
            }),
            Value::Array(pair) if *wait => match pair.as_slice() {
                [Value::Int(millis), Value::Int(place)] => Some(Outcome::Refused {
                    time_left: refused_for(*millis),
                    queue_position: Some(u32::try_from(*place).ok()?),
                }),
                _ => None,
            },
            _ => None,
        },
        (EXHAUSTED, Op::Acquire(_)) => Some(Outcome::Exhausted),
        (RENEWED, Op::Renew { count: None, .. }) => Some(Outcome::Kept),
        (
            RELEASED,
            Op::Renew {
                count: Some(count), ..
            },
        ) if number() == Some(count.get().into()) => Some(Outcome::Kept),
        (RELEASED, Op::Release { .. }) if number() == Some(0) => Some(Outcome::Released),
        (STORED, Op::SetToken { .. } | Op::WriteNote { .. }) => Some(Outcome::Stored),
        (OUTDATED, Op::SetToken { .. } | Op::WriteNote { .. }) => Some(Outcome::Outdated),
        (EXHAUSTED, Op::SetToken { .. }) => Some(Outcome::Exhausted),
        (
            LOST,
            Op::SetToken { .. } | Op::WriteNote { .. } | Op::Renew { .. } | Op::Release { .. },
        ) => Some(Outcome::Lost(match number()? {
            0 => Loss::Free,
            _ => Loss::TakenOver,
        })),
        (LOST, Op::Serve) => Some(Outcome::Served),
        (REVOKED, Op::Revoke(_)) => {
            let lease = text(value).and_then(|lease| lease.parse::<LeaseId>().ok());
            Some(Outcome::Revoked(lease.into_iter().collect()))
        }
        _ => None,
    }
}

/// The first token of a grant, and its run.
fn granted_run(parts: &[Value]) -> Option<(i64, Option<Run>)> {
    let [Value::Int(first), requested_at, last] = parts else {
        return None;
    };
    let last = match last {
        Value::Nil => None,
        last => Some(annotations::parse(last)?),
    };
    let requested_at = StoreTime::from_micros(text(requested_at)?.parse().ok()?);
    Some((*first, Some(Run { requested_at, last })))
}

/// The time left of the holder of a lock that was refused. 0: it is free for others that wait.
fn refused_for(millis: i64) -> Option<Duration> {
    (millis != 0).then(|| time_left(millis))
}

/// The time to live of a lease as the server reports it in ms, which is negative for a key without expiry.
pub(super) fn time_left(millis: i64) -> Duration {
    let span = u64::try_from(millis).map_or(Ttl::MAX.as_duration(), Duration::from_millis);
    span.min(Ttl::MAX.as_duration())
}

/// The text in a value. `None` if it is not a string.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::VerbatimString { text, .. } => Some(text.clone()),
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

/// The lease and the hold count in a record. `None` if the value is not a record.
pub(super) fn record(value: &Value) -> Option<(LeaseId, u32)> {
    let value = text(value)?;
    let (lease, rest) = value.split_once(' ').unwrap_or((&value, "1"));
    // Behind the count is when its run was asked for.
    let (count, requested_at) = rest.split_once(' ').unwrap_or((rest, "0"));
    requested_at.parse::<u64>().ok()?;
    Some((lease.parse().ok()?, count.parse().ok()?))
}

/// The fields of a hash or an object, in either protocol. `None` if it has none.
pub(super) fn fields(reply: &Value) -> Option<Vec<(&Value, &Value)>> {
    match reply {
        Value::Map(fields) => Some(fields.iter().map(|(name, value)| (name, value)).collect()),
        Value::Array(flat) => Some(
            flat.chunks_exact(2)
                .map(|pair| (&pair[0], &pair[1]))
                .collect(),
        ),
        _ => None,
    }
}

/// The value of a field.
pub(super) fn field<'a>(reply: &'a Value, name: &str) -> Option<&'a Value> {
    let is = |field: &Value| text(field).is_some_and(|field| field == name);
    let mut fields = fields(reply)?.into_iter();
    fields.find_map(|(field, value)| is(field).then_some(value))
}

/// The error in the `{command, error}` of a script, if it has that form.
pub(super) fn failed_command(key: &str, value: &Value) -> Option<Error> {
    match value {
        Value::Array(pair) => match pair.as_slice() {
            [command, error] => Some(errors::command(&text(command)?, key, &text(error)?)),
            _ => None,
        },
        _ => None,
    }
}

/// The error in the `{command, error, key}` of an operation, if it has that form.
pub(super) fn failed(value: &Value) -> Option<Error> {
    match value {
        Value::Array(parts) => match parts.as_slice() {
            [command, error, key] => {
                let (command, error) = (text(command)?, text(error)?);
                Some(errors::command(&command, &text(key)?, &error))
            }
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_and_the_rule_have_the_same_numbers() {
        let script = include_str!("scripts/mutex.lua");
        let (day, max) = (leasehold_core::token::RETENTION_MS, Token::MAX);
        assert!(script.contains(&format!("RETENTION_MS, TOKEN_MAX = '{day}', {max}")));
        let step = leasehold_core::quorum::HIGH_STEP;
        assert!(script.contains(&format!("HIGH_STEP = {step}")));
        let acceptance = leasehold_core::record::queue::ACCEPTANCE_MS;
        assert!(script.contains(&format!("ACCEPTANCE_MS = {acceptance}")));
        let revocation = leasehold_core::lock_event::REVOCATION_RETENTION.as_millis();
        assert!(script.contains(&format!("REVOCATION_MS = {revocation}")));
        let lead = leasehold_core::job::LEAD_MAX.as_micros();
        assert!(script.contains(&format!("LEAD_MAX = {lead}")));
        let ttl = Ttl::from_millis(7_000).unwrap();
        let retention = leasehold_core::record::queue::retention(ttl);
        assert_eq!(retention, 2 * ttl.as_duration() + Duration::from_secs(1));
        assert!(script.contains("retention = run('PTTL', queue), 2 * ttl + 1000"));
    }

    #[test]
    fn a_reply_names_what_was_not_renewed() {
        let now = StoreTime::from_micros(7);
        for (reply, open) in [
            ("*1\r\n:7\r\n", Some((now, vec![]))),
            ("*3\r\n:7\r\n:1\r\n:3\r\n", Some((now, vec![0, 2]))),
            ("*0\r\n", None),
            ("*1\r\n:-1\r\n", None),
            ("*2\r\n:7\r\n:0\r\n", None),
            ("*2\r\n:7\r\n:-1\r\n", None),
            ("*2\r\n:7\r\n_\r\n", None),
            ("*2\r\n$9\r\nPEXPIREAT\r\n_\r\n", None),
            ("_\r\n", None),
        ] {
            let value = redis::parse_redis_value(reply.as_bytes()).unwrap();
            assert_eq!(decode_renewals(&value), open, "{reply:?}");
        }
    }
}
