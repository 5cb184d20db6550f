//! Count-down latches as rows.
//!
//! The row of a latch has the number of its arrivals, so an arrival costs the same however many there were. Its ids are
//! compared by the primary key of `arrivals`.

use leasehold_core::{Arrival, ArrivalId, LatchCount, LatchRefusal, LatchStatus, StoreTime, latch};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::error::Fault;
use super::records;
use super::row::{columns, signed};
use crate::store::api::{Key, Parts, latch_refused, used_as_latch};
use crate::{Error, ErrorKind};

/// Counts an arrival as [`latch::arrive`] does, inside a transaction. Also returns whether it changed anything. A latch
/// that cannot be read is the error of this arrival, and no fault of the transaction.
pub(super) fn arrive(
    db: &Connection,
    key: &Key,
    arrival: &Arrival,
    now: StoreTime,
) -> Result<(crate::Result<LatchStatus>, bool), Fault> {
    let refused = |refusal| Ok((Err(latch_refused(refusal)), false));
    if let Err(refusal) = latch::check_lock(&records::load(db, key)?.record, now) {
        return refused(refusal);
    }
    let kept = match find(db, key, now) {
        Err(Fault::Found(error)) => return Ok((Err(error), false)),
        found => found?,
    };
    let status = match kept {
        Some(status) => status,
        None => {
            create(db, key, arrival.count)?;
            LatchStatus {
                arrived: 0,
                count: arrival.count.get(),
            }
        }
    };
    if let Err(refusal) = latch::check_count(status, arrival.count) {
        return refused(refusal);
    }
    if status.is_open() || !insert(db, key, &arrival.id)? {
        return Ok((Ok(status), false));
    }
    let (namespace, tenant, name) = columns(key);
    let expires_at = signed(now.after_span(arrival.ttl).as_micros());
    db.prepare_cached(
        "UPDATE latches SET arrived = arrived + 1, expires_at = max(expires_at, ?4)
         WHERE namespace = ?1 AND tenant = ?2 AND name = ?3",
    )?
    .execute(params![namespace, tenant, name, expires_at])?;
    let arrived = status.arrived + 1;
    Ok((Ok(LatchStatus { arrived, ..status }), true))
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
    if let Some(status) = find(db, key, now)? {
        return Ok(Some(status));
    }
    match records::view(db, key, &Parts::Lease, now)?.holder {
        Some(_) => Err(latch_refused(LatchRefusal::Lock).into()),
        None => Ok(None),
    }
}

/// The status of a latch that has not expired.
fn find(db: &Connection, key: &Key, now: StoreTime) -> Result<Option<LatchStatus>, Fault> {
    let (namespace, tenant, name) = columns(key);
    let now = signed(now.as_micros());
    let found: Option<(i64, i64)> = db
        .prepare_cached(
            "SELECT arrived, count FROM latches
             WHERE namespace = ?1 AND tenant = ?2 AND name = ?3 AND expires_at > ?4",
        )?
        .query_row(params![namespace, tenant, name, now], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    let Some((arrived, count)) = found else {
        return Ok(None);
    };
    let count = u32::try_from(count).ok().and_then(LatchCount::new);
    let count = count.ok_or_else(|| damaged("count"))?.get();
    let arrived = u32::try_from(arrived).ok();
    let arrived = arrived.filter(|arrived| (1..=count).contains(arrived));
    let arrived = arrived.ok_or_else(|| damaged("arrived"))?;
    Ok(Some(LatchStatus { arrived, count }))
}

/// Stores a latch without arrivals in the place of an expired one.
fn create(db: &Connection, key: &Key, count: LatchCount) -> Result<(), Fault> {
    remove(db, key)?;
    let (namespace, tenant, name) = columns(key);
    db.prepare_cached(
        "INSERT INTO latches (namespace, tenant, name, count, arrived, expires_at)
         VALUES (?1, ?2, ?3, ?4, 0, 0)",
    )?
    .execute(params![namespace, tenant, name, count.get()])?;
    Ok(())
}

/// Stores an id. `false` if it is known.
fn insert(db: &Connection, key: &Key, id: &ArrivalId) -> Result<bool, Fault> {
    let (namespace, tenant, name) = columns(key);
    let inserted = db
        .prepare_cached(
            "INSERT OR IGNORE INTO arrivals (namespace, tenant, name, id) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute([namespace, tenant, name, id.as_str()])?;
    Ok(inserted > 0)
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
