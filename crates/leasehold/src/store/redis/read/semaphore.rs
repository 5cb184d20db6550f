//! Reads the holders of semaphores and of read-write locks.

use leasehold_core::record::LeaseKind;
use leasehold_core::{LeaseId, StoreTime};
use redis::{Value, cmd};

use super::{RedisStore, STATUS_FIELD, Unreadable, checked, keyed};
use crate::Result;
use crate::store::api::Key;
use crate::store::redis::errors;
use crate::store::redis::wire::keys::record_key;
use crate::store::redis::wire::reply::{fields, is_error, parsed, text, time};

impl RedisStore {
    /// Puts the first holder of each of them in the place of its record in the replies to commands that read a mutex, as
    /// a state has one holder. All other records are left as they are.
    pub(super) async fn put_first_holders(&self, names: Vec<(&Key, &mut [Value])>) -> Result<()> {
        let mut others = names;
        others.retain(|(_, replies)| replies.first().is_some_and(|it| is_error(it, "WRONGTYPE")));
        if others.is_empty() {
            return Ok(());
        }
        // Not all fields at once: a latch has one for each arrival.
        let status = |key: &Key| keyed("HGET", record_key(key).to_string(), &[STATUS_FIELD]);
        let statuses = others.iter().map(|(key, _)| status(key)).collect();
        let statuses = self.fetch(statuses).await?;
        let mut semaphores = Vec::new();
        for ((key, replies), status) in others.into_iter().zip(&statuses) {
            if kind(self.permitted("HGET", key, status)?).is_some() {
                semaphores.push((key, replies));
            }
        }
        if semaphores.is_empty() {
            return Ok(());
        }
        let commands = semaphores.iter().flat_map(|(key, _)| {
            let record = record_key(key).to_string();
            let hash = keyed("HGETALL", record.clone(), &[]);
            [hash, (record, cmd("TIME"))]
        });
        let read = self.fetch(commands.collect()).await?;
        for ((key, replies), read) in semaphores.into_iter().zip(read.chunks(2)) {
            let ([semaphore, now], [record, ttl, ..]) = (read, replies) else {
                continue;
            };
            let semaphore = self.permitted("HGETALL", key, semaphore)?;
            let now = time(self.permitted("TIME", key, now)?);
            let now = now.ok_or_else(|| errors::invalid_reply().at_store(self))?;
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

    /// The reply to a command on a record, which may have another type, but not a command that the server refuses.
    fn permitted<'a>(&self, command: &str, key: &Key, reply: &'a Value) -> Result<&'a Value> {
        match checked(command, &record_key(key), reply) {
            Err(Unreadable::Refused(error)) => Err(error.for_lock(&key.name).at_store(self)),
            Ok(_) | Err(Unreadable::Foreign(_)) => Ok(reply),
        }
    }
}

/// The kind of a lock with several holders in the first field of its hash.
pub(super) fn kind(status: &Value) -> Option<LeaseKind> {
    match text(status)?.split(' ').next()? {
        "permits" => Some(LeaseKind::Semaphore),
        "access" => Some(LeaseKind::RwLock),
        _ => None,
    }
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
