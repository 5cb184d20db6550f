//! The fast path for batches of renewals: a separate script at a third of the cost.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_core::{LeaseId, Op, Outcome, StoreTime, Ttl};
use redis::aio::ConnectionLike;
use redis::{Cmd, RedisResult, RedisWrite, Value};

use super::keys::record_key;
use super::script::{REQUESTS_MAX, Script};
use crate::store::api::{Key, Reply, Request};

/// The bytes of the arguments of a renewal without its names.
const BYTES_EACH: usize = 64;

/// The script of the fast path.
pub(super) const RENEW: &str = include_str!("scripts/renew.lua");

/// The script for renewals of one server.
#[derive(Debug)]
pub(super) struct RenewScript {
    script: Script,
    /// Whether the server cannot run it.
    off: AtomicBool,
}

/// A renewal of a batch: its position there, its record and its lease.
pub(super) type Renewal<'a> = (usize, &'a Key, LeaseId);

impl RenewScript {
    pub(super) fn new() -> Self {
        Self {
            script: Script::new(RENEW),
            off: AtomicBool::new(false),
        }
    }

    /// The number of calls sent so far.
    pub(super) fn calls(&self) -> u64 {
        self.script.calls()
    }

    /// Whether the script can apply a batch: it contains only renewals.
    pub(super) fn suits(&self, batch: &[Request]) -> bool {
        let renewals = batch
            .iter()
            .all(|request| matches!(request.op, Op::Renew { .. }));
        renewals && !batch.is_empty() && !self.off.load(Ordering::Relaxed)
    }

    /// Applies the renewals that the script can. Those without a reply afterwards need the rule.
    pub(super) async fn apply(
        &self,
        connection: &mut (impl ConnectionLike + Send),
        batch: &[Request],
    ) -> RedisResult<Vec<Option<Reply>>> {
        let mut groups = BTreeMap::<Ttl, Vec<Renewal<'_>>>::new();
        for (position, request) in batch.iter().enumerate() {
            if let Op::Renew { lease, ttl } = request.op {
                let group = groups.entry(ttl).or_default();
                group.push((position, &request.key, lease));
            }
        }
        let parts: Vec<_> = groups
            .iter()
            .flat_map(|(ttl, group)| group.chunks(REQUESTS_MAX).map(move |part| (*ttl, part)))
            .collect();
        let answers = self.script.call(connection, &parts, encode).await?;
        let mut replies = vec![None; batch.len()];
        for ((_, part), answer) in parts.iter().zip(&answers) {
            let Some((now, open)) = decode(answer) else {
                self.note_failure(answer);
                continue;
            };
            let outcome = Outcome::Renewed;
            for (nth, (position, ..)) in part.iter().enumerate() {
                if !open.contains(&nth) {
                    replies[*position] = Some(Reply::Applied { outcome, now });
                }
            }
        }
        Ok(replies)
    }

    /// Turns the script off if the server cannot run it.
    fn note_failure(&self, answer: &Value) {
        if let Value::Array(_) = answer
            && !self.off.swap(true, Ordering::Relaxed)
        {
            tracing::debug!(?answer, "renewals use the rule");
        }
    }
}

pub(super) fn encode(verb: &str, script: &str, (ttl, part): &(Ttl, &[Renewal<'_>])) -> Cmd {
    let bytes = part.len() * BYTES_EACH + script.len();
    let mut cmd = Cmd::with_capacity(4 + part.len() * 2, bytes);
    cmd.write_arg(verb.as_bytes());
    cmd.write_arg(script.as_bytes());
    cmd.write_arg_fmt(part.len());
    for (_, key, _) in *part {
        cmd.write_arg_fmt(record_key(key));
    }
    cmd.write_arg_fmt(ttl.as_millis());
    for (_, _, lease) in *part {
        cmd.write_arg_fmt(lease);
    }
    cmd
}

/// The time of the server, and the positions that were not renewed. `None` if the answer is invalid.
pub(super) fn decode(answer: &Value) -> Option<(StoreTime, Vec<usize>)> {
    let Value::Array(items) = answer else {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_what_was_not_renewed() {
        let ints = |numbers: &[i64]| {
            let items = numbers.iter().map(|number| Value::Int(*number));
            Value::Array(items.collect())
        };
        let now = StoreTime::from_micros(7);
        assert_eq!(decode(&ints(&[7])), Some((now, vec![])));
        assert_eq!(decode(&ints(&[7, 1, 3])), Some((now, vec![0, 2])));
        for strange in [
            ints(&[]),
            ints(&[-1]),
            ints(&[7, 0]),
            ints(&[7, -1]),
            Value::Nil,
            Value::Array(vec![Value::BulkString(b"PEXPIRE".to_vec()), Value::Nil]),
            Value::Array(vec![Value::Int(7), Value::Nil]),
        ] {
            assert_eq!(decode(&strange), None, "{strange:?}");
        }
    }
}
