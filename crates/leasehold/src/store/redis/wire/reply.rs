//! The parts of replies.

use std::str::FromStr;
use std::time::Duration;

use leasehold_core::{LeaseId, StoreTime, Ttl};
use redis::{Value, from_redis_value_ref};

/// The text in a value. `None` if it is not a string.
pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::VerbatimString { text, .. } => Some(text.clone()),
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

/// A value in the text of a reply. `None` if it has none.
pub(crate) fn parsed<T: FromStr>(value: &Value) -> Option<T> {
    text(value)?.parse().ok()
}

/// The lease and the hold count in a record. `None` if the value is not a record.
pub(crate) fn record(value: &Value) -> Option<(LeaseId, u32)> {
    let value = text(value)?;
    let (lease, rest) = value.split_once(' ').unwrap_or((&value, "1"));
    // Behind the count is when its run was asked for.
    let (count, requested_at) = rest.split_once(' ').unwrap_or((rest, "0"));
    requested_at.parse::<u64>().ok()?;
    Some((lease.parse().ok()?, count.parse().ok()?))
}

/// The time to live of a lease as the server reports it in ms, which is negative for a key without expiry.
pub(crate) fn time_left(millis: i64) -> Duration {
    let span = u64::try_from(millis).map_or(Ttl::MAX.as_duration(), Duration::from_millis);
    span.min(Ttl::MAX.as_duration())
}

/// The reply to `TIME`: seconds and microseconds.
pub(crate) fn time(reply: &Value) -> Option<StoreTime> {
    let (seconds, micros): (u64, u64) = from_redis_value_ref(reply).ok()?;
    let micros = seconds.checked_mul(1_000_000)?.checked_add(micros)?;
    Some(StoreTime::from_micros(micros))
}

/// The value of a field.
pub(crate) fn field<'a>(reply: &'a Value, name: &str) -> Option<&'a Value> {
    let is = |field: &Value| text(field).is_some_and(|field| field == name);
    let mut fields = reply.as_map_iter()?;
    fields.find_map(|(field, value)| is(field).then_some(value))
}

/// Whether the reply is an error of this code.
pub(crate) fn is_error(reply: &Value, code: &str) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == code)
}
