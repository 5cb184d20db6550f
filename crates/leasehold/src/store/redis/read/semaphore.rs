//! Reads the holders of a semaphore.

use leasehold_core::{LeaseId, StoreTime};
use redis::{Value, cmd};

use super::{RedisStore, STATUS_FIELD, keyed};
use crate::Result;
use crate::store::api::Key;
use crate::store::redis::wire::keys::record_key;
use crate::store::redis::wire::reply::{field, fields, parsed, text, time};

impl RedisStore {
    /// Puts the first holder of a semaphore in the place of the record in the `replies` to commands that read a mutex, as a
    /// state has one holder. Any other record is left as it is.
    pub(super) async fn put_first_holder(&self, key: &Key, replies: &mut [Value]) -> Result<()> {
        let record_key = record_key(key).to_string();
        let commands = vec![
            keyed("HGETALL", record_key.clone(), &[]),
            (record_key, cmd("TIME")),
        ];
        let read = self.fetch(commands).await?;
        if let ([semaphore, now], [record, ttl, ..]) = (read.as_slice(), replies)
            && let Some(now) = time(now)
            && field(semaphore, STATUS_FIELD).is_some_and(is_semaphore)
        {
            let first = holders(semaphore, now).min_by_key(|holder| holder.0);
            (*record, *ttl) = match first {
                Some((lease, count, millis)) => {
                    let value = format!("{lease} {count}").into_bytes();
                    (Value::BulkString(value), Value::Int(millis))
                }
                None => (Value::Nil, Value::Int(-2)),
            };
        }
        Ok(())
    }
}

/// Whether the first field of a hash is that of a semaphore.
pub(super) fn is_semaphore(status: &Value) -> bool {
    text(status).is_some_and(|status| status.starts_with("permits "))
}

/// The leases that have not ended, with their hold counts and the time that they have left in ms.
fn holders(semaphore: &Value, now: StoreTime) -> impl Iterator<Item = (LeaseId, u32, i64)> {
    let fields = fields(semaphore).unwrap_or_default().into_iter();
    fields.filter_map(move |(lease, holder)| {
        let holder = text(holder)?;
        // Its permits, its hold count, its first token and its end.
        let mut words = holder.split(' ').skip(1);
        let (count, end) = (words.next()?, words.nth(1)?);
        let end = StoreTime::from_micros(end.parse().ok()?);
        let left = now.until(end).as_micros().div_ceil(1_000);
        let millis = i64::try_from(left).ok().filter(|millis| *millis > 0)?;
        Some((parsed(lease)?, count.parse().ok()?, millis))
    })
}
