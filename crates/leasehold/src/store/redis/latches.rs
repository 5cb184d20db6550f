//! Count-down latches: lists in the keys of records.

use std::time::Duration;

use leasehold_core::record::{Kind, LeaseKind};
use leasehold_core::{ArrivalId, LatchCount, LatchStatus, Mismatch, Outcome};
use redis::{Cmd, RedisWrite as _, Value};

use super::codec;
use super::errors;
use super::keys::{queue_key, record_key};
use super::latch_status;
use super::reader::{Reader, Unreadable, checked, command};
use crate::store::api::{Key, mismatch};
use crate::{Error, Result};

/// The script that counts arrivals and removes latches.
const LATCH: &str = include_str!("scripts/latch.lua");

const USED_AS_LOCK: Mismatch = Mismatch::Kind(Kind::Leases(LeaseKind::Mutex));

/// A call of [`LATCH`] for an arrival, with its id, the count and the time for which the latch is kept; or, without one,
/// to remove the latch.
pub(super) fn encode(key: &Key, arrival: Option<(&ArrivalId, LatchCount, Duration)>) -> Cmd {
    let mut cmd = Cmd::new();
    cmd.arg("EVAL").arg(LATCH).arg(2);
    cmd.write_arg_fmt(record_key(key));
    cmd.write_arg_fmt(queue_key(key));
    if let Some((id, count, keep)) = arrival {
        cmd.write_arg_fmt(id);
        cmd.write_arg_fmt(count);
        cmd.write_arg_fmt(codec::keep_millis(keep));
    }
    cmd
}

/// The outcome of an arrival.
pub(super) fn arrived(count: LatchCount, reply: &Value) -> Result<Outcome> {
    match numbers(reply).as_deref() {
        Some([0, arrived, count]) => Ok(Outcome::Arrived(LatchStatus {
            arrived: *arrived,
            count: *count,
        })),
        Some([1, stored]) => Err(mismatch(Mismatch::Count {
            stored: *stored,
            requested: count.get(),
        })),
        _ => Err(failure(reply)),
    }
}

/// The outcome of a removal.
pub(super) fn removed(reply: &Value) -> Result<Outcome> {
    match numbers(reply).as_deref() {
        Some([0, removed]) => Ok(Outcome::Removed(*removed > 0)),
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

/// Whether leases wait for a lock with this name, and none holds it.
pub(super) fn is_waited_for(reply: &Value) -> bool {
    numbers(reply).as_deref() == Some(&[3])
}

fn failure(reply: &Value) -> Error {
    match reply {
        Value::ServerError(error) => errors::call(error).0,
        reply if matches!(numbers(reply).as_deref(), Some([2 | 3])) => mismatch(USED_AS_LOCK),
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
        Ok([value]) if codec::record(value).is_some() => mismatch(USED_AS_LOCK),
        Ok(_) => errors::foreign_value(&record),
        Err(error) => error.clone(),
    }
}
