//! Count-down latches: lists in the keys of records.

use leasehold_core::{Arrival, LatchRefusal, LatchStatus};
use redis::{Cmd, RedisWrite as _, Value};

use super::codec;
use super::errors;
use super::keys::record_key;
use super::latch_status;
use super::reader::{Reader, Unreadable, checked, command};
use crate::store::api::{Key, latch_refused};
use crate::{Error, Result};

/// The script that counts arrivals and removes latches.
pub(super) const LATCH: &str = include_str!("scripts/latch.lua");

/// The longest time for which a latch is kept in ms: servers add it to their time in a number of 64 bits.
const TTL_MAX: u128 = 1 << 53;

/// What a call of [`LATCH`] does. `None` removes the latch.
pub(super) type Call<'a> = (&'a Key, Option<&'a Arrival>);

/// A call of [`LATCH`].
pub(super) fn encode(verb: &str, script: &str, (key, arrival): &Call<'_>) -> Cmd {
    let mut cmd = Cmd::new();
    cmd.arg(verb).arg(script).arg(1);
    cmd.write_arg_fmt(record_key(key));
    if let Some(Arrival { id, count, ttl }) = arrival {
        cmd.write_arg_fmt(id);
        cmd.write_arg_fmt(count);
        cmd.write_arg_fmt(ttl.as_micros().div_ceil(1_000).clamp(1, TTL_MAX));
    }
    cmd
}

/// The result of an arrival.
pub(super) fn arrived(arrival: &Arrival, reply: &Value) -> Result<LatchStatus> {
    match numbers(reply).as_deref() {
        Some([0, arrived, count]) => Ok(LatchStatus {
            arrived: *arrived,
            count: *count,
        }),
        Some([1, stored]) => Err(latch_refused(LatchRefusal::Count {
            stored: *stored,
            requested: arrival.count.get(),
        })),
        _ => Err(failure(reply)),
    }
}

/// The result of a removal: whether there was a latch.
pub(super) fn removed(reply: &Value) -> Result<bool> {
    match numbers(reply).as_deref() {
        Some([0, removed]) => Ok(*removed > 0),
        _ => Err(failure(reply)),
    }
}

fn numbers(reply: &Value) -> Option<Vec<u32>> {
    let Value::Array(values) = reply else {
        return None;
    };
    let number = |value: &Value| match value {
        Value::Int(number) => u32::try_from(*number).ok(),
        _ => None,
    };
    values.iter().map(number).collect()
}

fn failure(reply: &Value) -> Error {
    match reply {
        Value::ServerError(error) => errors::call(error).0,
        reply if numbers(reply).as_deref() == Some(&[2]) => latch_refused(LatchRefusal::Lock),
        reply => codec::failed(reply).unwrap_or_else(errors::invalid_reply),
    }
}

/// The status of a latch in the reply to [`latch_status::command`]. `None`: it has no record.
pub(super) fn status(key: &Key, reply: &Value) -> Result<Option<LatchStatus>, Unreadable> {
    let record = record_key(key).to_string();
    match checked("LINDEX", &record, reply)? {
        Value::Nil => Ok(None),
        reply => {
            let foreign = || Unreadable::Refused(errors::foreign_value(&record));
            latch_status::parse(reply).ok_or_else(foreign).map(Some)
        }
    }
}

/// The error of a latch whose key has another type: usually, the name is used as a lock.
pub(super) async fn wrong_type(reader: &impl Reader, key: &Key) -> Error {
    let record = record_key(key).to_string();
    let read = reader.fetch(vec![command("GET", record.clone())]).await;
    match read.as_deref() {
        Ok([value]) if codec::record(value).is_some() => latch_refused(LatchRefusal::Lock),
        Ok(_) => errors::foreign_value(&record),
        Err(error) => error.clone(),
    }
}
