//! Count-down latches as rows.

use std::collections::BTreeSet;

use leasehold_core::{
    Arrival, ArrivalId, LatchCount, LatchRecord, LatchRefusal, LatchStatus, StoreTime, latch,
};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::error::Fault;
use super::records;
use super::row::{columns, signed};
use crate::store::api::{Key, latch_refused, used_as_latch};
use crate::{Error, ErrorKind};

/// Counts an arrival by the rule, inside a transaction. Also returns whether it changed anything. A latch that cannot be
/// read is the error of this arrival, and no fault of the transaction.
pub(super) fn arrive(
    db: &Connection,
    key: &Key,
    arrival: &Arrival,
    now: StoreTime,
) -> Result<(crate::Result<LatchStatus>, bool), Fault> {
    let lock = records::load(db, key)?.record;
    let mut stored = match load(db, key, now) {
        Err(Fault::Found(error)) => return Ok((Err(error), false)),
        loaded => loaded?,
    };
    let before = stored.as_ref().map(LatchRecord::status);
    let arrived = latch::arrive(&lock, &mut stored, arrival, now);
    let changed = arrived.is_ok() && arrived.ok() != before;
    if let Some(latch) = stored.filter(|_| changed) {
        if before.is_none() {
            // What an expired latch has left.
            remove(db, key)?;
        }
        save(db, key, &latch, &arrival.id)?;
    }
    Ok((arrived.map_err(latch_refused), changed))
}

/// Removes a latch by the rule, inside a transaction. Returns whether there was one.
pub(super) fn reset(
    db: &Connection,
    key: &Key,
    now: StoreTime,
) -> Result<Result<bool, LatchRefusal>, Fault> {
    if let Err(refusal) = latch::check_lock(&records::load(db, key)?.record, now) {
        return Ok(Err(refusal));
    }
    // Also one that cannot be read.
    let kept = is_kept(db, key, now)?;
    remove(db, key)?;
    Ok(Ok(kept))
}

/// Whether a name is used as a latch.
pub(super) fn is_kept(db: &Connection, key: &Key, now: StoreTime) -> Result<bool, Fault> {
    let (namespace, tenant, name) = columns(key);
    let now = signed(now.as_micros());
    Ok(db
        .prepare_cached(
            "SELECT 1 FROM latches
             WHERE namespace = ?1 AND tenant = ?2 AND name = ?3 AND expires_at > ?4",
        )?
        .exists(params![namespace, tenant, name, now])?)
}

/// Refuses to read a lock whose name is used as a latch.
pub(super) fn refuse_latch(db: &Connection, key: &Key, now: StoreTime) -> Result<(), Fault> {
    match is_kept(db, key, now)? {
        true => Err(used_as_latch().into()),
        false => Ok(()),
    }
}

/// The status of a latch. `None`: it has no record.
pub(super) fn status(
    db: &Connection,
    key: &Key,
    now: StoreTime,
) -> Result<Option<LatchStatus>, Fault> {
    let Some((count, _)) = find(db, key, now)? else {
        return match records::holder(db, key, now)? {
            (Some(_), _) => Err(latch_refused(LatchRefusal::Lock).into()),
            (None, _) => Ok(None),
        };
    };
    let (namespace, tenant, name) = columns(key);
    let arrived = db
        .prepare_cached(
            "SELECT count(*) FROM arrivals WHERE namespace = ?1 AND tenant = ?2 AND name = ?3",
        )?
        .query_row([namespace, tenant, name], |row| row.get(0))?;
    let count = count.get();
    Ok(Some(LatchStatus { arrived, count }))
}

/// The record of a latch that has not expired.
fn load(db: &Connection, key: &Key, now: StoreTime) -> Result<Option<LatchRecord>, Fault> {
    let Some((count, expires_at)) = find(db, key, now)? else {
        return Ok(None);
    };
    let mut statement = db.prepare_cached(
        "SELECT id FROM arrivals WHERE namespace = ?1 AND tenant = ?2 AND name = ?3",
    )?;
    let (namespace, tenant, name) = columns(key);
    let mut rows = statement.query([namespace, tenant, name])?;
    let mut arrived = BTreeSet::new();
    while let Some(row) = rows.next()? {
        let id: String = row.get("id").map_err(|_| damaged("id"))?;
        arrived.insert(ArrivalId::parse(&id).map_err(|_| damaged("id"))?);
    }
    Ok(Some(LatchRecord {
        count,
        arrived,
        expires_at,
    }))
}

/// The count and the end of a latch that has not expired.
fn find(
    db: &Connection,
    key: &Key,
    now: StoreTime,
) -> Result<Option<(LatchCount, StoreTime)>, Fault> {
    let (namespace, tenant, name) = columns(key);
    let now = signed(now.as_micros());
    let found: Option<(i64, i64)> = db
        .prepare_cached(
            "SELECT count, expires_at FROM latches
             WHERE namespace = ?1 AND tenant = ?2 AND name = ?3 AND expires_at > ?4",
        )?
        .query_row(params![namespace, tenant, name, now], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    let Some((count, expires_at)) = found else {
        return Ok(None);
    };
    let count = u32::try_from(count).ok().and_then(LatchCount::new);
    let count = count.ok_or_else(|| damaged("count"))?;
    Ok(Some((
        count,
        StoreTime::from_micros(expires_at.unsigned_abs()),
    )))
}

/// Stores a latch and an id that was added.
fn save(db: &Connection, key: &Key, latch: &LatchRecord, id: &ArrivalId) -> Result<(), Fault> {
    let (namespace, tenant, name) = columns(key);
    db.prepare_cached(
        "INSERT INTO latches (namespace, tenant, name, count, expires_at)
         VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (namespace, tenant, name) DO UPDATE SET expires_at = excluded.expires_at",
    )?
    .execute(params![
        namespace,
        tenant,
        name,
        latch.count.get(),
        signed(latch.expires_at.as_micros())
    ])?;
    db.prepare_cached(
        "INSERT INTO arrivals (namespace, tenant, name, id) VALUES (?1, ?2, ?3, ?4)",
    )?
    .execute([namespace, tenant, name, id.as_str()])?;
    Ok(())
}

fn remove(db: &Connection, key: &Key) -> Result<(), Fault> {
    let (namespace, tenant, name) = columns(key);
    for delete in [
        "DELETE FROM arrivals WHERE namespace = ?1 AND tenant = ?2 AND name = ?3",
        "DELETE FROM latches WHERE namespace = ?1 AND tenant = ?2 AND name = ?3",
    ] {
        db.prepare_cached(delete)?
            .execute([namespace, tenant, name])?;
    }
    Ok(())
}

/// The fault of a latch with a value that leasehold did not write.
fn damaged(column: &str) -> Fault {
    let message = format!("the latch is damaged ({column}); reset it");
    Error::new(ErrorKind::Store, message).into()
}
