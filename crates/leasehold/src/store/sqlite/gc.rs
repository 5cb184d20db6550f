//! Garbage collection of heads, members and observers.

use leasehold_core::StoreTime;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::error::Fault;
use super::row::signed;
use super::rows::HOLDER;
use super::time::AHEAD;

/// The number of heads checked in one run. It takes well under a millisecond.
const CHUNK: u32 = 512;

/// The number of writes between two runs: half of [`CHUNK`], so that all heads are checked faster than
/// new ones can be added.
const WRITES: u32 = CHUNK / 2;

/// Decides when to collect garbage.
///
/// A head is removed [`AHEAD`] after its end: the time of the store never falls back by more, so a new counter gives out
/// larger tokens.
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

/// Removes what has ended.
fn collect(db: &Connection, now: StoreTime) -> Result<u32, Fault> {
    let now = signed(now.as_micros());
    db.prepare_cached(
        "DELETE FROM members
         WHERE (namespace, tenant, name, class, id) IN (
             SELECT namespace, tenant, name, class, id FROM members WHERE until <= ?1 LIMIT ?2)",
    )?
    .execute(params![now, CHUNK])?;
    let removed = collect_heads(db, now.saturating_sub(AHEAD))?;
    db.prepare_cached("DELETE FROM observers WHERE until <= ?1")?
        .execute([now])?;
    Ok(u32::try_from(removed).unwrap_or(u32::MAX))
}

/// Checks the next heads after those of the last run of any process, in a cycle: an index by their ends would slow down
/// every operation. Removes those that have ended by `behind` and have no holder, and their members.
fn collect_heads(db: &Connection, behind: i64) -> Result<usize, Fault> {
    let start: [String; 3] = db
        .prepare_cached("SELECT swept_namespace, swept_tenant, swept_name FROM meta")?
        .query_row([], key)?;
    let end: Option<[String; 3]> = db
        .prepare_cached(
            "SELECT namespace, tenant, name FROM heads
             WHERE (namespace, tenant, name) > (?1, ?2, ?3)
             ORDER BY namespace, tenant, name LIMIT 1 OFFSET ?4",
        )?
        .query_row(params![start[0], start[1], start[2], CHUNK - 1], key)
        .optional()?;
    let removed = db
        .prepare_cached(
            "DELETE FROM heads
             WHERE (namespace, tenant, name) IN (
                 SELECT namespace, tenant, name FROM heads
                 WHERE (namespace, tenant, name) > (?1, ?2, ?3)
                 ORDER BY namespace, tenant, name LIMIT ?4)
               AND until <= ?5
               AND NOT EXISTS (
                   SELECT 1 FROM members AS m
                   WHERE m.namespace = heads.namespace AND m.tenant = heads.tenant
                     AND m.name = heads.name AND m.class = ?6)",
        )?
        .execute(params![start[0], start[1], start[2], CHUNK, behind, HOLDER])?;
    let [namespace, tenant, name] = [0, 1, 2].map(|column| end.as_ref().map(|end| &end[column]));
    db.prepare_cached(
        "DELETE FROM members
         WHERE (namespace, tenant, name) > (?1, ?2, ?3)
           AND (?4 IS NULL OR (namespace, tenant, name) <= (?4, ?5, ?6))
           AND until IS NULL
           AND NOT EXISTS (
               SELECT 1 FROM heads AS h
               WHERE h.namespace = members.namespace AND h.tenant = members.tenant
                 AND h.name = members.name)",
    )?
    .execute(params![
        start[0], start[1], start[2], namespace, tenant, name
    ])?;
    let [namespace, tenant, name] = end.unwrap_or_default();
    db.prepare_cached("UPDATE meta SET swept_namespace = ?1, swept_tenant = ?2, swept_name = ?3")?
        .execute([namespace, tenant, name])?;
    Ok(removed)
}

fn key(row: &rusqlite::Row<'_>) -> rusqlite::Result<[String; 3]> {
    Ok([row.get(0)?, row.get(1)?, row.get(2)?])
}
