//! Writes the calls of scripts.

use std::fmt::{Arguments, Display, Write as _};
use std::time::Duration;

use leasehold_core::record::Unless;
use leasehold_core::{Acquire, Claim, LeaseId, NewNote, Op, Ttl, Whom};
use redis::{Cmd, RedisWrite as _};

use super::keys::{
    COUNTER_SUFFIX, KEY_BYTES, QUEUE_SUFFIX, admission_key, note_suffix, record_key,
};
use super::script::Script;
use crate::store::api::{Key, Request};

/// The largest number that a script writes with all its digits.
const EXACT_MAX: u128 = 1 << 53;

/// The longest time in microseconds for which a set limit is kept, of which the sum with the time is such a number.
const KEEP_MAX: u128 = 1 << 52;

const KEYS_EACH: usize = 3;

/// What follows the record in the keys of a request.
const KEY_SUFFIXES: [&str; KEYS_EACH] = ["", COUNTER_SUFFIX, QUEUE_SUFFIX];

const ARGS_EACH: usize = 4;

/// The bytes of the arguments of a request without its keys: verb, lease, ttl and proposal.
const ARGS_BYTES: usize = 88;

/// The bytes of a lease and the space behind it, with a long number.
const LEASE_BYTES: usize = 44;

/// What a call depends on beside its requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallContext<'a> {
    /// Whether the queue is used. If not, an acquisition that would wait is refused.
    pub(crate) queued: bool,
    /// The id of the node of a cluster. Empty without a cluster.
    pub(crate) node: &'a str,
    /// Whether only the record is declared, of a single request. In a slot that is being migrated to the node, a
    /// call is refused if one of its keys does not exist.
    pub(crate) record_only: bool,
    /// Whether the server is one of many masters. Then all requests are of one namespace.
    pub(crate) master: bool,
}

/// A call of a script for requests of one namespace: by its hash, or by its text.
pub(crate) fn encode(
    script: Script,
    requests: &[Request],
    by_text: bool,
    context: &CallContext<'_>,
) -> Cmd {
    if script.is_fast() {
        return encode_renewals(script, requests, by_text);
    }
    let record_only = context.record_only || script == Script::Latch;
    let bytes = requests.len() * (KEYS_EACH * KEY_BYTES + ARGS_BYTES);
    let args = 1 + requests.len() * (KEYS_EACH + ARGS_EACH) + 1;
    let mut cmd = script.call(by_text, args, 8 + bytes);
    let admission = requests.first().filter(|_| context.master);
    let keys_each = if record_only { 1 } else { KEYS_EACH };
    cmd.write_arg_fmt(requests.len() * keys_each + usize::from(admission.is_some()));
    for request in requests {
        match record_only {
            true => cmd.write_arg(record_key(&request.key).as_bytes()),
            false => write_keys(&mut cmd, &request.key),
        }
    }
    if let Some(request) = admission {
        cmd.write_arg(admission_key(request.key.space.namespace()).as_bytes());
    }
    for request in requests {
        encode_op(&mut cmd, &request.op, context.queued);
    }
    if !context.node.is_empty() {
        cmd.write_arg(context.node.as_bytes());
    }
    cmd
}

/// The keys that a call declares to the owner of their slot.
pub(crate) fn declared_keys(script: Script, requests: &[Request]) -> Vec<String> {
    let record_only = script.is_fast() || script == Script::Latch;
    let keys_each = if record_only { 1 } else { KEYS_EACH };
    let keys = requests.iter().flat_map(|request| {
        let record = record_key(&request.key);
        let suffixes = KEY_SUFFIXES.into_iter().take(keys_each);
        suffixes.map(move |suffix| format!("{record}{suffix}"))
    });
    keys.collect()
}

/// A call of the fast path for renewals, all for the same ttl.
fn encode_renewals(script: Script, requests: &[Request], by_text: bool) -> Cmd {
    let bytes = requests.len() * (KEY_BYTES + LEASE_BYTES);
    let mut cmd = script.call(by_text, 3 + requests.len(), bytes);
    cmd.write_arg_fmt(requests.len());
    for request in requests {
        cmd.write_arg(record_key(&request.key).as_bytes());
    }
    let ttl = requests.first().and_then(|request| request.op.ttl());
    cmd.write_arg_fmt(ttl.map_or(0, Ttl::as_millis));
    let mut leases = String::with_capacity(requests.len() * LEASE_BYTES);
    for lease in requests.iter().filter_map(|request| request.op.lease()) {
        let separator = if leases.is_empty() { "" } else { " " };
        // Writing to a string does not fail.
        let _ = write!(leases, "{separator}{lease}");
    }
    cmd.write_arg(leases.as_bytes());
    cmd
}

fn write_keys(cmd: &mut Cmd, key: &Key) {
    // Formatted once, as that takes longer than to copy it.
    let mut name = record_key(key);
    let length = name.len();
    for suffix in KEY_SUFFIXES {
        name.truncate(length);
        name.push_str(suffix);
        cmd.write_arg(name.as_bytes());
    }
}

fn encode_op(cmd: &mut Cmd, op: &Op, queued: bool) {
    let mut args = |verb: Arguments<'_>, subject: &dyn Display, span: &dyn Display| {
        cmd.write_arg_fmt(verb);
        cmd.write_arg_fmt(subject);
        cmd.write_arg_fmt(span);
    };
    match op {
        Op::Acquire(acquire) => encode_acquire(cmd, acquire, queued),
        Op::Convert { .. } | Op::SetLimit { .. } => encode_change(cmd, op, queued),
        Op::SetToken {
            lease,
            first,
            tokens,
        } => args(format_args!("set_token {first} {tokens}"), lease, &""),
        Op::Renew { lease, ttl, count } => match count {
            Some(count) => args(format_args!("renew {count}"), lease, &ttl.as_millis()),
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
        Op::Serve => args(format_args!("serve"), &"", &""),
        Op::Arrive { id, count, keep } => {
            args(format_args!("arrive {count}"), id, &keep_millis(*keep));
        }
        // A note and a client are no part of a call: see `command`.
        Op::Remove(_) | Op::Describe { .. } => args(format_args!("remove"), &"", &""),
    }
}

/// A change of what a lease holds, or of a limit.
fn encode_change(cmd: &mut Cmd, op: &Op, queued: bool) {
    match op {
        Op::Convert {
            lease,
            first,
            claim,
            ttl,
            tokens,
            wait,
        } => {
            let (wait, claim) = (u8::from(*wait && queued), claim_words(*claim));
            cmd.write_arg_fmt(format_args!("convert {tokens} {first} {wait} {claim}"));
            cmd.write_arg_fmt(lease);
            cmd.write_arg_fmt(ttl.as_millis());
        }
        Op::SetLimit {
            permits,
            if_version,
            keep,
        } => {
            let version = if_version.map_or("-".to_owned(), |version| version.to_string());
            let keep = keep.as_micros().min(KEEP_MAX);
            cmd.write_arg_fmt(format_args!("set_limit {permits} {version} {keep}"));
            cmd.write_arg(b"");
            cmd.write_arg(b"");
        }
        _ => {}
    }
}

fn encode_acquire(cmd: &mut Cmd, request: &Acquire, queued: bool) {
    let Acquire { count, tokens, .. } = request;
    let waits = request.wait && queued;
    let verb = if waits { "queue" } else { "acquire" };
    let claim = match request.claim {
        Claim::Mutex => String::new(),
        claim => format!(" {}", claim_words(claim)),
    };
    let unless = match &request.unless {
        Some(unless) => format!(" unless {}", condition(unless)),
        None => String::new(),
    };
    let takes_proposal = request.claim == Claim::Mutex && request.unless.is_none();
    let proposal = request.proposal.filter(|_| takes_proposal);
    let is_plain = is_plain(request);
    match proposal {
        None if is_plain && request.claim == Claim::Mutex => cmd.write_arg(verb.as_bytes()),
        None => cmd.write_arg_fmt(format_args!("{verb} {tokens} {count}{claim}{unless}")),
        Some(_) if is_plain => cmd.write_arg(b"propose"),
        Some(proposal) => cmd.write_arg_fmt(format_args!("acquire {tokens} {count} {proposal}")),
    }
    cmd.write_arg_fmt(request.lease);
    cmd.write_arg_fmt(request.ttl.as_millis());
    if let Some(proposal) = proposal.filter(|_| is_plain) {
        cmd.write_arg_fmt(proposal);
    }
}

/// A claim in the words of `shares.lua`.
fn claim_words(claim: Claim) -> String {
    match claim {
        Claim::Mutex => "mutex 1".to_owned(),
        Claim::Permits {
            weight,
            limit,
            numbered,
        } => {
            let word = if numbered { "numbered" } else { "of" };
            format!("{word} {weight} {limit}")
        }
        Claim::Access(access) => format!("access {}", access.weight()),
    }
}

/// Whether an acquisition is for one hold and one token, and for neither a number nor a run.
pub(crate) fn is_plain(request: &Acquire) -> bool {
    let is_one = (request.count.get(), request.tokens.get()) == (1, 1);
    let has_number = matches!(request.claim, Claim::Permits { numbered: true, .. });
    is_one && !has_number && request.unless.is_none()
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
    let (token, number, text) = (note.token, note.number, &note.text);
    cmd.write_arg(note_suffix(&note.slot).as_bytes());
    cmd.write_arg_fmt(format_args!("{lease} {token} {number} {text}"));
}

/// The time for which a note or a latch is kept in ms. Servers add it to their time in a number of 64 bits.
pub(crate) fn keep_millis(keep: Duration) -> u128 {
    keep.as_micros().div_ceil(1_000).clamp(1, EXACT_MAX)
}
