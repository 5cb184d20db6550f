//! Garbage collection of free records, queues, clients, annotations, latches, revocations and observers.

use leasehold_core::StoreTime;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::error::Fault;
use super::row::signed;
use super::time::AHEAD;

/// The number of records checked in one run. It takes well under a millisecond.
const CHUNK: u32 = 512;

/// The number of writes between two runs: half of [`CHUNK`], so that all records are checked faster than
/// new ones can be added.
const WRITES: u32 = CHUNK / 2;

/// Decides when to collect garbage.
///
/// A free record is kept as long as it has waiters, or its counter is ahead of the time of the store, which
/// never falls back by more than [`AHEAD`]: after that, a new record would give out larger tokens anyway.
#[derive(Debug)]
pub(super) struct GarbageCollector {
    writes: u32,
}

impl GarbageCollector {
    /// Starts at a random count, so that many processes with few writes each do their share.
    pub(super) fn new() -> Self {
        Self {
            writes: fastrand::u32(..WRITES),
        }
    }

    /// Runs if there were enough writes since the last time, inside the transaction of these writes.
    pub(super) fn count_writes(
        &mut self,
        writes: u32,
        db: &Connection,
        now: StoreTime,
    ) -> Result<(), Fault> {
        self.writes = self.writes.saturating_add(writes);
        if self.writes < WRITES {
            return Ok(());
        }
        let removed = collect(db, now)?;
        // After many removals, the next run is due with the next write.
        self.writes = if removed >= CHUNK / 4 { WRITES } else { 0 };
        Ok(())
    }
}

/// Checks the next records after those of the last run of any process, in a cycle.
fn collect(db: &Connection, now: StoreTime) -> Result<u32, Fault> {
    let now = signed(now.as_micros());
    let behind = now.saturating_sub(AHEAD);
    let start: [String; 3] = db
        .prepare_cached("SELECT swept_namespace, swept_tenant, swept_name FROM meta")?
        .query_row([], key)?;
    let end: Option<[String; 3]> = db
        .prepare_cached(
            "SELECT namespace, tenant, name FROM records
             WHERE (namespace, tenant, name) > (?1, ?2, ?3)
             ORDER BY namespace, tenant, name LIMIT 1 OFFSET ?4",
        )?
        .query_row(params![start[0], start[1], start[2], CHUNK - 1], key)
        .optional()?;
    let removed = db
        .prepare_cached(
            "DELETE FROM records
             WHERE (namespace, tenant, name) IN (
                 SELECT namespace, tenant, name FROM records
                 WHERE (namespace, tenant, name) > (?1, ?2, ?3)
                 ORDER BY namespace, tenant, name LIMIT ?4)
               AND (client IS NULL OR expires_at <= ?5)
               AND (queue_until IS NULL OR queue_until <= ?5)
               AND (last_token IS NULL OR last_token < ?6)",
        )?
        .execute(params![start[0], start[1], start[2], CHUNK, now, behind])?;
    remove_queues(db, &start, end.as_ref(), now)?;
    let [namespace, tenant, name] = end.unwrap_or_default();
    db.prepare_cached("UPDATE meta SET swept_namespace = ?1, swept_tenant = ?2, swept_name = ?3")?
        .execute([namespace, tenant, name])?;
    db.prepare_cached(
        "DELETE FROM clients
         WHERE client IN (SELECT client FROM clients WHERE until <= ?1 LIMIT ?2)",
    )?
    .execute(params![now, CHUNK])?;
    db.prepare_cached(
        "DELETE FROM annotations
         WHERE (namespace, tenant, name, kind, completion_key) IN (
             SELECT namespace, tenant, name, kind, completion_key FROM annotations
             WHERE until <= ?1 LIMIT ?2)",
    )?
    .execute(params![now, CHUNK])?;
    // The arrivals first: those that are left still have their latch, by which the next run finds them.
    db.prepare_cached(
        "DELETE FROM arrivals
         WHERE (namespace, tenant, name, id) IN (
             SELECT namespace, tenant, name, id FROM latches JOIN arrivals USING (namespace, tenant, name)
             WHERE expires_at <= ?1 LIMIT ?2)",
    )?
    .execute(params![now, CHUNK])?;
    db.prepare_cached(
        "DELETE FROM latches
         WHERE (namespace, tenant, name) IN (
             SELECT namespace, tenant, name FROM latches AS l
             WHERE expires_at <= ?1 AND NOT EXISTS (
                 SELECT 1 FROM arrivals AS a
                 WHERE a.namespace = l.namespace AND a.tenant = l.tenant AND a.name = l.name)
             LIMIT ?2)",
    )?
    .execute(params![now, CHUNK])?;
    // They are few: one for each forced release of the last minute.
    db.prepare_cached("DELETE FROM revocations WHERE until <= ?1")?
        .execute([now])?;
    db.prepare_cached("DELETE FROM observers WHERE until <= ?1")?
        .execute([now])?;
    Ok(u32::try_from(removed).unwrap_or(u32::MAX))
}

/// Removes the expired queues of the names in a range.
fn remove_queues(
    db: &Connection,
    start: &[String; 3],
    end: Option<&[String; 3]>,
    now: i64,
) -> Result<(), Fault> {
    let [namespace, tenant, name] = [0, 1, 2].map(|column| end.map(|end| &end[column]));
    db.prepare_cached(
        "DELETE FROM waiters
         WHERE (namespace, tenant, name) > (?1, ?2, ?3)
           AND (?4 IS NULL OR (namespace, tenant, name) <= (?4, ?5, ?6))
           AND NOT EXISTS (
               SELECT 1 FROM records AS r
               WHERE r.namespace = waiters.namespace AND r.tenant = waiters.tenant
                 AND r.name = waiters.name AND r.queue_until > ?7)",
    )?
    .execute(params![
        start[0], start[1], start[2], namespace, tenant, name, now
    ])?;
    Ok(())
}

fn key(row: &rusqlite::Row<'_>) -> rusqlite::Result<[String; 3]> {
    Ok([row.get(0)?, row.get(1)?, row.get(2)?])
}
