//! The lease of each name that was revoked last, as rows: by them observers tell a revocation from a release.

use leasehold_core::lock_event::REVOCATION_RETENTION;
use leasehold_core::{LeaseId, StoreTime};
use rusqlite::{Connection, Row, params};

use super::error::Fault;
use super::row::{columns, signed};
use crate::store::api::Key;

/// Stores the lease that was revoked, inside the transaction of its revocation.
pub(super) fn save(
    db: &Connection,
    key: &Key,
    lease: LeaseId,
    now: StoreTime,
) -> Result<(), Fault> {
    let (namespace, tenant, name) = columns(key);
    db.prepare_cached(
        "INSERT INTO revocations (namespace, tenant, name, client, number, until)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (namespace, tenant, name) DO UPDATE
         SET client = excluded.client, number = excluded.number, until = excluded.until",
    )?
    .execute(params![
        namespace,
        tenant,
        name,
        lease.client.to_string(),
        lease.number.cast_signed(),
        signed(now.after_span(REVOCATION_RETENTION).as_micros())
    ])?;
    Ok(())
}

/// The lease that was revoked last. `None` also for a row that cannot be read: no rule depends on it.
pub(super) fn load(db: &Connection, key: &Key, now: StoreTime) -> Result<Option<LeaseId>, Fault> {
    let mut statement = db.prepare_cached(
        "SELECT client, number FROM revocations
         WHERE namespace = ?1 AND tenant = ?2 AND name = ?3 AND until > ?4",
    )?;
    let (namespace, tenant, name) = columns(key);
    let now = signed(now.as_micros());
    let mut rows = statement.query(params![namespace, tenant, name, now])?;
    Ok(rows.next()?.and_then(lease))
}

fn lease(row: &Row<'_>) -> Option<LeaseId> {
    Some(LeaseId {
        client: row.get::<_, String>("client").ok()?.parse().ok()?,
        number: row.get::<_, i64>("number").ok()?.cast_unsigned(),
    })
}
