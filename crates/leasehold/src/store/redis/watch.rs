//! Which records the server is asked to watch: it tells when somebody else changes them.
//!
//! It watches what was read, until the next change, one's own included. So they are read behind the
//! script, in the same round trip. Not by the script: servers before 7.2 watch all keys of a script
//! anew at each of its reads, which takes time with the square of a batch, and would tell of counters
//! and queues.

use leasehold_core::{Op, Outcome};
use redis::{Cmd, Pipeline, RedisWrite, Value};

use super::keys::RecordKey;
use crate::store::{Key, Reply, Request};

/// Asks the server to watch the keys of the next command.
pub(super) const START: [&str; 3] = ["CLIENT", "CACHING", "YES"];

/// Adds the read behind a batch, if anything in it wants to be watched, and answers whether so.
pub(super) fn add(pipeline: &mut Pipeline, requests: &[Request]) -> bool {
    let mut keys = requests.iter().filter(|request| wanted(&request.op));
    let Some(first) = keys.next() else {
        return false;
    };
    let mut cmd: Cmd = redis::cmd("EXISTS");
    cmd.write_arg_fmt(RecordKey(&first.key));
    for request in keys {
        cmd.write_arg_fmt(RecordKey(&request.key));
    }
    let mut start = Cmd::new();
    start.arg(&START);
    pipeline.add_command(start).add_command(cmd);
    true
}

/// The records that may have been changed between the script and the read, given the answer to the
/// read: it counts those that there are.
pub(super) fn missed<'a>(
    requests: &'a [Request],
    replies: &'a [Reply],
    counted: &Value,
) -> impl Iterator<Item = &'a Key> {
    let there = || {
        let pairs = requests.iter().zip(replies);
        pairs.filter_map(|(request, reply)| stands(request, reply).then_some(&request.key))
    };
    let all = match counted {
        Value::Int(counted) => {
            usize::try_from(*counted).is_ok_and(|counted| counted >= there().count())
        }
        // It was refused: nothing is watched.
        _ => true,
    };
    there().filter(move |_| !all)
}

/// Whether a request is about a lock that its client may hold afterwards, or waits for.
fn wanted(op: &Op) -> bool {
    match *op {
        Op::Acquire { .. } | Op::Renew { .. } => true,
        Op::Release { count, .. } => count > 0,
        Op::Revoke => false,
    }
}

/// Whether there was a record after a request that is watched.
fn stands(request: &Request, reply: &Reply) -> bool {
    let Reply::Applied { outcome, .. } = reply else {
        return false;
    };
    let held = matches!(
        outcome,
        Outcome::Granted { .. }
            | Outcome::Refused { .. }
            | Outcome::Renewed
            | Outcome::Released { .. }
    );
    held && wanted(&request.op)
}
