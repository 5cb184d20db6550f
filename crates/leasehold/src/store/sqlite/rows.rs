//! Records as rows: the head of a name in `heads`, and everything beside it in `members`.
//!
//! The values are the texts of [`leasehold_core::record::text`]. Inside a transaction nobody else changes a record, so
//! the rule reads each part when it needs it. An uncontended operation reads and writes one row.

use leasehold_core::record::{
    self, Applied, Body, Change, Changes, Class, Environment, Head, Holder, LeaseKind, Op, Outcome,
    Part, QueueHead, Removal, Row, Source, Stop, Waiter, Whom,
};
use leasehold_core::{ClientId, LeaseId, StoreTime};
use rusqlite::{Connection, Params, params};

use super::error::Fault;
use super::row::{columns, signed};
use crate::store::api::Key;

/// The tables of records.
///
/// `until` is when a row may be removed, as far as the row itself shows; see [`Head::kept_until`] and [`Row::kept_until`]. A member
/// without `until` may be removed together with its head, and a head stays as long as it has holders. `place` is the
/// place of a waiter.
pub(super) const TABLES: &str = "
    CREATE TABLE heads (
        namespace TEXT NOT NULL,
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        until INTEGER NOT NULL,
        PRIMARY KEY (namespace, tenant, name)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE members (
        namespace TEXT NOT NULL,
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        class INTEGER NOT NULL,
        id TEXT NOT NULL,
        place INTEGER,
        value TEXT NOT NULL,
        until INTEGER,
        PRIMARY KEY (namespace, tenant, name, class, id)
    ) STRICT, WITHOUT ROWID;
    CREATE UNIQUE INDEX members_by_place ON members (namespace, tenant, name, place)
        WHERE place IS NOT NULL;
    CREATE INDEX members_by_end ON members (until) WHERE until IS NOT NULL;
";

/// The classes of members.
const HOLDER: u8 = 1;
const WAITER: u8 = 2;
const ARRIVAL: u8 = 3;
const NOTE: u8 = 4;

/// Applies an operation to the stored record of a name, inside a transaction. `reaches` returns whether a notice would
/// reach a client, the same for a client throughout one call.
///
/// # Errors
///
/// [`Fault::Unreadable`] if the record is damaged. Nothing is written then, and other names are not affected.
pub(super) fn apply(
    db: &Connection,
    key: &Key,
    op: &Op,
    now: StoreTime,
    reaches: impl FnMut(ClientId) -> bool,
) -> Result<Applied, Fault> {
    let mut record = StoredRecord {
        db,
        key,
        now,
        reaches,
        head: Head::default(),
        fault: None,
    };
    let applied = match record.run(op) {
        Err(Fault::Unreadable(word)) => record.repair(op, word)?,
        applied => applied?,
    };
    record.write(&applied.changes)?;
    Ok(applied)
}

/// The stored record of a name.
struct StoredRecord<'a, F> {
    db: &'a Connection,
    key: &'a Key,
    now: StoreTime,
    reaches: F,
    /// The stored head, once it has been read.
    head: Head,
    /// The cause of [`Stop::Failed`].
    fault: Option<Fault>,
}

impl<F: FnMut(ClientId) -> bool> Source for StoredRecord<'_, F> {
    fn head(&mut self) -> Result<Head, Stop> {
        let (namespace, tenant, name) = columns(self.key);
        let mut heads = self.select(
            "SELECT value FROM heads WHERE namespace = ?1 AND tenant = ?2 AND name = ?3",
            [namespace, tenant, name],
            |row| Head::from_text(text(row, "value")?),
        )?;
        self.head = heads.pop().unwrap_or_default();
        Ok(self.head)
    }

    fn row(&mut self, part: &Part) -> Result<Option<Row>, Stop> {
        let (namespace, tenant, name) = columns(self.key);
        let mut members = self.select(
            "SELECT value, place FROM members
             WHERE namespace = ?1 AND tenant = ?2 AND name = ?3 AND class = ?4 AND id = ?5",
            params![namespace, tenant, name, class(part), part.id()],
            |row| member(part, row),
        )?;
        Ok(members.pop())
    }

    fn holders(&mut self) -> Result<Vec<Holder>, Stop> {
        let (namespace, tenant, name) = columns(self.key);
        self.select(
            "SELECT id, value, place FROM members
             WHERE namespace = ?1 AND tenant = ?2 AND name = ?3 AND class = ?4",
            params![namespace, tenant, name, HOLDER],
            |row| match member(&Part::Holder(lease(row)?), row)? {
                Row::Holder(holder) => Ok(holder),
                _ => Err(Stop::Damaged("holder")),
            },
        )
    }

    fn waiter_from(&mut self, place: u64) -> Result<Option<Waiter>, Stop> {
        let (namespace, tenant, name) = columns(self.key);
        let mut waiters = self.select(
            "SELECT id, value, place FROM members
             WHERE namespace = ?1 AND tenant = ?2 AND name = ?3 AND place >= ?4
             ORDER BY place LIMIT 1",
            params![namespace, tenant, name, signed(place)],
            |row| match member(&Part::Waiter(lease(row)?), row)? {
                Row::Waiter(waiter) => Ok(waiter),
                _ => Err(Stop::Damaged("waiter")),
            },
        )?;
        Ok(waiters.pop())
    }

    fn waiters_between(&mut self, from: u64, to: u64) -> Result<u32, Stop> {
        let (namespace, tenant, name) = columns(self.key);
        let mut counts = self.select(
            "SELECT count(*) AS waiters FROM members
             WHERE namespace = ?1 AND tenant = ?2 AND name = ?3 AND place >= ?4 AND place < ?5",
            params![namespace, tenant, name, signed(from), signed(to)],
            |row| row.get("waiters").map_err(|_| Stop::Damaged("queue")),
        )?;
        Ok(counts.pop().unwrap_or_default())
    }

    fn reaches(&mut self, client: ClientId) -> Result<bool, Stop> {
        Ok((self.reaches)(client))
    }
}

impl<F: FnMut(ClientId) -> bool> StoredRecord<'_, F> {
    /// Runs the rule, which writes nothing.
    fn run(&mut self, op: &Op) -> Result<Applied, Fault> {
        let environment = Environment { now: self.now };
        record::apply(self, op, &environment).map_err(|stop| match (stop, self.fault.take()) {
            (Stop::Damaged(word), _) => Fault::Unreadable(word),
            (_, Some(fault)) => fault,
            (_, None) => Fault::Unreadable("record"),
        })
    }

    /// Reads all rows of a statement.
    fn select<T>(
        &mut self,
        sql: &str,
        params: impl Params,
        read: impl Fn(&rusqlite::Row<'_>) -> Result<T, Stop>,
    ) -> Result<Vec<T>, Stop> {
        let db = self.db;
        let mut failed = |error| {
            self.fault = Some(Fault::from(error));
            Stop::Failed
        };
        let mut statement = db.prepare_cached(sql).map_err(&mut failed)?;
        let mut rows = statement.query(params).map_err(&mut failed)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(&mut failed)? {
            found.push(read(row)?);
        }
        Ok(found)
    }

    /// Writes the changes of an operation.
    fn write(&self, changes: &Changes) -> Result<(), Fault> {
        if let Some(head) = &changes.head {
            self.put_head(head)?;
        }
        for class in [HOLDER, WAITER, ARRIVAL] {
            let is_put = |change: &Change| match change {
                Change::Put(part, _) => self::class(part) == class,
                _ => false,
            };
            // Rows that a lost head has left behind must not appear beside the next one.
            if !self.head_has(class) && changes.rows.iter().any(is_put) {
                self.clear(class)?;
            }
        }
        for change in &changes.rows {
            match change {
                Change::Put(part, row) => self.put(part, row)?,
                Change::Remove(part) => self.remove(part)?,
                Change::Clear(Class::Waiters) => self.clear(WAITER)?,
                Change::Clear(Class::Arrivals) => self.clear(ARRIVAL)?,
            }
        }
        Ok(())
    }

    /// Applies an operation of an operator to a damaged record. A forced release removes everything except the notes, and
    /// keeps the counter and the holder of a mutex if they can be read.
    fn repair(&mut self, op: &Op, word: &'static str) -> Result<Applied, Fault> {
        let mut outcome = None;
        match op {
            Op::Revoke(Whom::All) => {
                let mut head = self.head().unwrap_or_default();
                head.queue = QueueHead::default();
                if !matches!(head.body, Body::Leases(leases) if leases.kind == LeaseKind::Mutex) {
                    head.body = Body::Free;
                }
                for class in [HOLDER, WAITER, ARRIVAL] {
                    self.clear(class)?;
                }
                self.put_head(&head)?;
            }
            Op::Remove(Removal::Note(slot)) if self.head().is_ok() => {
                self.remove(&Part::Note(slot.clone()))?;
                outcome = Some(Outcome::Removed(true));
            }
            _ => return Err(Fault::Unreadable(word)),
        }
        let applied = self.run(op)?;
        Ok(Applied {
            outcome: outcome.unwrap_or(applied.outcome),
            changed: true,
            ..applied
        })
    }

    fn put_head(&self, head: &Head) -> Result<(), Fault> {
        let (namespace, tenant, name) = columns(self.key);
        let until = signed(head.kept_until().as_micros());
        self.execute(
            "INSERT INTO heads (namespace, tenant, name, value, until) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (namespace, tenant, name) DO UPDATE
             SET value = excluded.value, until = excluded.until",
            params![namespace, tenant, name, head.to_text(), until],
        )
    }

    /// Stores a member, in the place of one with the same id or place.
    fn put(&self, part: &Part, row: &Row) -> Result<(), Fault> {
        let (namespace, tenant, name) = columns(self.key);
        let (class, id, place, value) = (class(part), part.id(), place(row), row.to_text());
        let until = row.kept_until().map(|until| signed(until.as_micros()));
        self.execute(
            "INSERT OR REPLACE INTO members (namespace, tenant, name, class, id, place, value, until)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![namespace, tenant, name, class, id, place, value, until],
        )
    }

    fn remove(&self, part: &Part) -> Result<(), Fault> {
        let (namespace, tenant, name) = columns(self.key);
        self.execute(
            "DELETE FROM members
             WHERE namespace = ?1 AND tenant = ?2 AND name = ?3 AND class = ?4 AND id = ?5",
            params![namespace, tenant, name, class(part), part.id()],
        )
    }

    fn clear(&self, class: u8) -> Result<(), Fault> {
        let (namespace, tenant, name) = columns(self.key);
        self.execute(
            "DELETE FROM members
             WHERE namespace = ?1 AND tenant = ?2 AND name = ?3 AND class = ?4",
            params![namespace, tenant, name, class],
        )
    }

    fn execute(&self, sql: &str, params: impl Params) -> Result<(), Fault> {
        self.db.prepare_cached(sql)?.execute(params)?;
        Ok(())
    }

    /// Whether the stored head has members of a class.
    fn head_has(&self, class: u8) -> bool {
        match self.head.body {
            Body::Leases(leases) if class == HOLDER => leases.used > 0,
            Body::Latch(latch) if class == ARRIVAL => latch.arrived > 0,
            _ => class == WAITER && self.head.queue.len > 0,
        }
    }
}

const fn class(part: &Part) -> u8 {
    match part {
        Part::Holder(_) => HOLDER,
        Part::Waiter(_) => WAITER,
        Part::Arrival(_) => ARRIVAL,
        Part::Note(_) => NOTE,
    }
}

fn place(row: &Row) -> Option<i64> {
    match row {
        Row::Waiter(waiter) => Some(signed(waiter.place)),
        _ => None,
    }
}

/// The member of a row, whose place must be the one by which it was found.
fn member(part: &Part, row: &rusqlite::Row<'_>) -> Result<Row, Stop> {
    let member = Row::from_text(part, text(row, "value")?)?;
    match row.get("place") {
        Ok(stored) if place(&member) == stored => Ok(member),
        _ => Err(Stop::Damaged("place")),
    }
}

fn lease(row: &rusqlite::Row<'_>) -> Result<LeaseId, Stop> {
    text(row, "id")?.parse().map_err(|_| Stop::Damaged("lease"))
}

fn text<'a>(row: &'a rusqlite::Row<'_>, column: &str) -> Result<&'a str, Stop> {
    let value = row
        .get_ref(column)
        .ok()
        .and_then(|value| value.as_str().ok());
    value.ok_or(Stop::Damaged("text"))
}

#[cfg(test)]
mod tests;
