//! Reads the holders of semaphores and of read-write locks.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::record::{Access, LeaseKind};
use leasehold_core::{Name, StoreTime};
use redis::{Value, cmd};

use super::{RedisStore, STATUS_FIELD, Unreadable, checked, keyed};
use crate::Result;
use crate::store::api::{HolderInfo, Key, Usage, View};
use crate::store::redis::errors;
use crate::store::redis::wire::keys::record_key;
use crate::store::redis::wire::reply::{is_error, parsed, text, time};

/// What the record of a lock with several holders says.
pub(crate) struct Shared {
    usage: Option<Usage>,
    /// By their leases.
    holders: Vec<HolderInfo>,
}

impl Shared {
    /// Adds it to a view without holders.
    pub(super) fn complete(self, view: &mut View) {
        let mut holders = self.holders.into_iter();
        view.holder = holders.next();
        view.others = holders.collect();
        view.usage = self.usage;
    }
}

impl RedisStore {
    /// Reads the locks with several holders among these names, by the replies to the commands that read a mutex.
    pub(super) async fn shared(
        &self,
        names: &[(&Key, &[Value])],
    ) -> Result<BTreeMap<Name, Shared>> {
        let mut others = Vec::new();
        for (key, replies) in names {
            if replies.first().is_some_and(|it| is_error(it, "WRONGTYPE")) {
                others.push(*key);
            }
        }
        // Not all fields at once: a record of another kind may have thousands.
        let status = |key: &&Key| keyed("HGET", record_key(key), &[STATUS_FIELD]);
        let statuses = self.fetch(others.iter().map(status).collect()).await?;
        let mut semaphores = Vec::new();
        for (key, status) in others.into_iter().zip(&statuses) {
            let status = permitted("HGET", key, status)?;
            if kind(status).is_some() {
                semaphores.push((key, status));
            }
        }
        let commands = semaphores.iter().flat_map(|(key, _)| {
            let record = record_key(key);
            let hash = keyed("HGETALL", record.clone(), &[]);
            [hash, (record, cmd("TIME"))]
        });
        let read = self.fetch(commands.collect()).await?;
        let mut found = BTreeMap::new();
        for ((key, status), read) in semaphores.into_iter().zip(read.chunks(2)) {
            let [semaphore, now] = read else { continue };
            let semaphore = permitted("HGETALL", key, semaphore)?;
            let now = time(permitted("TIME", key, now)?);
            let now = now.ok_or_else(errors::invalid_reply)?;
            let mut holders: Vec<_> = holders(semaphore, now).collect();
            holders.sort_by_key(|holder| holder.lease);
            let usage = usage(status, &holders, now);
            found.insert(key.name.clone(), Shared { usage, holders });
        }
        Ok(found)
    }
}

/// The reply to a command on a record, which may have another type, but not a command that the server refuses.
fn permitted<'a>(command: &str, key: &Key, reply: &'a Value) -> Result<&'a Value> {
    match checked(command, &record_key(key), reply) {
        Err(Unreadable::Refused(error)) => Err(error.for_lock(&key.name)),
        Ok(_) | Err(Unreadable::Foreign(_)) => Ok(reply),
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

/// How a lock is used. `None`: nobody holds it, and its number of permits is not set.
fn usage(status: &Value, holders: &[HolderInfo], now: StoreTime) -> Option<Usage> {
    let kind = kind(status)?;
    let used: u64 = holders.iter().map(|holder| holder.weight).sum();
    let status = text(status)?;
    // The number of permits, and of a setting its version, the time for which it is kept, and its end.
    let words: Vec<_> = status.split(' ').skip(1).collect();
    let permits = match kind {
        LeaseKind::RwLock => Access::LIMIT,
        _ => words.first()?.parse().ok()?,
    };
    let end = words.get(3).and_then(|end| end.parse().ok());
    let is_set = end.is_some_and(|end| now < StoreTime::from_micros(end));
    (used > 0 || is_set).then_some(Usage {
        kind,
        permits,
        used,
    })
}

/// The holders whose leases have not ended.
fn holders(semaphore: &Value, now: StoreTime) -> impl Iterator<Item = HolderInfo> {
    let fields = semaphore.as_map_iter().into_iter().flatten();
    fields.filter_map(move |(lease, holder)| {
        let holder = text(holder)?;
        // Its permits and its number, its hold count, its first token and its end.
        let mut words = holder.split(' ');
        let (weight, count) = (words.next()?, words.next()?);
        let end = StoreTime::from_micros(words.nth(1)?.parse().ok()?);
        let (weight, number) = match weight.split_once('#') {
            Some((weight, number)) => (weight, Some(number.parse().ok()?)),
            None => (weight, None),
        };
        let left = now.until(end).as_micros().div_ceil(1_000);
        let millis = u64::try_from(left).ok().filter(|millis| *millis > 0)?;
        let (count, time_left) = (count.parse().ok()?, Duration::from_millis(millis));
        Some(HolderInfo {
            weight: weight.parse().ok()?,
            number,
            ..HolderInfo::new(parsed(lease)?, count, time_left)
        })
    })
}
