//! Garbage collection of heads and members.

use leasehold_core::StoreTime;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::error::Fault;
use super::rows::{execute, select};
use super::time::AHEAD;
use crate::store::rows::class;
use crate::store::tables::signed;

/// The number of heads checked in one run. It takes well under a millisecond.
const CHUNK: i64 = 512;

/// The number of writes between two runs: half of [`CHUNK`], so that all heads are checked faster than
/// new ones can be added.
const WRITES: usize = 256;

/// A few more may end at the same instant as the last one.
pub(super) const DELETE_ENDED_MEMBERS: &str = "
    DELETE FROM members
    WHERE until <= coalesce(
        (SELECT until FROM members WHERE until <= ?1 ORDER BY until LIMIT 1 OFFSET ?2), ?1)";

pub(super) const FIND_END_OF_CHUNK: &str = "
    SELECT namespace, tenant, name FROM heads
    WHERE (namespace, tenant, name) > (?1, ?2, ?3)
    ORDER BY namespace, tenant, name LIMIT 1 OFFSET ?4";

pub(super) const DELETE_ENDED_HEADS: &str = "
    DELETE FROM heads
    WHERE (namespace, tenant, name) IN (
        SELECT namespace, tenant, name FROM heads
        WHERE (namespace, tenant, name) > (?1, ?2, ?3)
        ORDER BY namespace, tenant, name LIMIT ?4)
      AND until <= ?5
      AND NOT EXISTS (
          SELECT 1 FROM members AS m
          WHERE m.class = ?6 AND m.namespace = heads.namespace AND m.tenant = heads.tenant
            AND m.name = heads.name)
    RETURNING namespace, tenant, name";

pub(super) const DELETE_MEMBERS_OF_HEAD: &str = "
    DELETE FROM members
    WHERE class IN (?1, ?2) AND namespace = ?3 AND tenant = ?4 AND name = ?5";

/// Decides when to collect garbage.
///
/// A head is removed [`AHEAD`] after its end: the time of the store never falls back by more, so a new counter gives out
/// larger tokens.
#[derive(Debug)]
pub(super) struct GarbageCollector {
    writes: usize,
}

impl GarbageCollector {
    /// Starts at a random count, so that many processes with few writes each do their share.
    pub(super) fn new() -> Self {
        Self {
            writes: fastrand::usize(..WRITES),
        }
    }

    /// Runs if there were enough writes since the last time, inside the transaction of these writes.
    pub(super) fn count_writes(
        &mut self,
        writes: usize,
        db: &Connection,
        now: StoreTime,
    ) -> Result<(), Fault> {
        self.writes = self.writes.saturating_add(writes);
        if self.writes < WRITES {
            return Ok(());
        }
        let now = signed(now.as_micros());
        execute(db, DELETE_ENDED_MEMBERS, params![now, CHUNK - 1])?;
        let removed = collect_heads(db, now.saturating_sub(AHEAD))?;
        // After many removals, the next run is due with the next write.
        self.writes = match removed >= WRITES / 2 {
            true => WRITES,
            false => 0,
        };
        Ok(())
    }
}

/// Checks the next heads after those of the last run of any process, in a cycle: an index by their ends would slow down
/// every operation. Removes those that have ended by `behind` and have no holder, and their members.
fn collect_heads(db: &Connection, behind: i64) -> Result<usize, Fault> {
    let [namespace, tenant, name] = db
        .prepare_cached("SELECT swept_namespace, swept_tenant, swept_name FROM meta")?
        .query_row([], key)?;
    let end = db
        .prepare_cached(FIND_END_OF_CHUNK)?
        .query_row(params![namespace, tenant, name, CHUNK - 1], key)
        .optional()?;
    let deleted = params![namespace, tenant, name, CHUNK, behind, class::HOLDER];
    let deleted = select(db, DELETE_ENDED_HEADS, deleted, |row| Ok(key(row)?))?;
    for [namespace, tenant, name] in &deleted {
        let members = params![class::WAITER, class::ARRIVAL, namespace, tenant, name];
        execute(db, DELETE_MEMBERS_OF_HEAD, members)?;
    }
    let position = "UPDATE meta SET swept_namespace = ?1, swept_tenant = ?2, swept_name = ?3";
    execute(db, position, end.unwrap_or_default())?;
    Ok(deleted.len())
}

fn key(row: &rusqlite::Row<'_>) -> rusqlite::Result<[String; 3]> {
    Ok([row.get(0)?, row.get(1)?, row.get(2)?])
}
