//! Dropping what no longer matters.

use leasehold_core::StoreTime;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::error::Fault;
use super::row::signed;
use super::time::AHEAD;

/// A sweep looks at this many records. It takes well under a millisecond.
const CHUNK: u32 = 512;

/// After how many writes it is time for a sweep: half as many as it looks at, so that it goes
/// around faster than records can be added.
const WRITES: u32 = CHUNK / 2;

/// Decides when to sweep.
///
/// A record that is free matters as long as somebody waits for it, or its counter is ahead of the
/// store's time, which never falls back by more than [`AHEAD`]: after that a new record would give
/// out larger tokens anyway.
#[derive(Debug)]
pub(super) struct GarbageCollector {
    writes: u32,
}

impl GarbageCollector {
    /// A sweeper that has its first turn at a random moment: a process that lives for a few
    /// writes sweeps rarely, but many of them do their share.
    pub(super) fn new() -> Self {
        Self {
            writes: fastrand::u32(..WRITES),
        }
    }

    /// Sweeps if enough was written since the last time. Inside the transaction of these writes.
    pub(super) fn wrote(
        &mut self,
        writes: u32,
        db: &Connection,
        now: StoreTime,
    ) -> Result<(), Fault> {
        self.writes = self.writes.saturating_add(writes);
        if self.writes < WRITES {
            return Ok(());
        }
        let dropped = sweep(db, now)?;
        // Where much was found there is more: go on with the next write.
        self.writes = if dropped >= CHUNK / 4 { WRITES } else { 0 };
        Ok(())
    }
}

/// Looks at the next records after those of the last sweep, by whichever process, and goes round.
fn sweep(db: &Connection, now: StoreTime) -> Result<u32, Fault> {
    let now = signed(now.as_micros());
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
    let dropped = db
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
        .execute(params![
            start[0],
            start[1],
            start[2],
            CHUNK,
            now,
            now.saturating_sub(AHEAD)
        ])?;
    sweep_waiters(db, &start, end.as_ref(), now)?;
    let [namespace, tenant, name] = end.unwrap_or_default();
    db.prepare_cached("UPDATE meta SET swept_namespace = ?1, swept_tenant = ?2, swept_name = ?3")?
        .execute([namespace, tenant, name])?;
    db.prepare_cached(
        "DELETE FROM clients
         WHERE client IN (SELECT client FROM clients WHERE until <= ?1 LIMIT ?2)",
    )?
    .execute(params![now, CHUNK])?;
    Ok(u32::try_from(dropped).unwrap_or(u32::MAX))
}

/// Drops the queues of the names between two that nobody has asked for long enough.
fn sweep_waiters(
    db: &Connection,
    start: &[String; 3],
    end: Option<&[String; 3]>,
    now: i64,
) -> Result<(), Fault> {
    let [namespace, tenant, name] = start;
    let last = end.map(|[namespace, tenant, name]| (namespace, tenant, name));
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
        namespace,
        tenant,
        name,
        last.map(|last| last.0),
        last.map(|last| last.1),
        last.map(|last| last.2),
        now
    ])?;
    Ok(())
}

fn key(row: &rusqlite::Row<'_>) -> rusqlite::Result<[String; 3]> {
    Ok([row.get(0)?, row.get(1)?, row.get(2)?])
}
