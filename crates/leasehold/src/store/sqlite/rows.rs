//! Records as rows: the head of a name in `heads`, and everything beside it in `members`.
//!
//! Inside a transaction nobody else changes a record, so the rule reads each part when it needs it. An uncontended
//! operation reads and writes one row.

use leasehold_core::record::{
    Body, Changes, Environment, Head, Holder, Op, Part, QueueHead, Row, Source, Waiter,
};
use leasehold_core::{ClientId, LeaseId};
use rusqlite::{Connection, Params, params};

use super::error::Fault;
use crate::store::api::Key;
use crate::store::records::Record;
use crate::store::rows::class::{DESCRIPTION, HOLDER, WAITER, WATCHER};
use crate::store::rows::{Damage, DamagedText, class, read_head};
use crate::store::tables::{Table, columns, place, read_member, signed};

/// Frees all locks and forgets their clients, inside a transaction. All else stays, with the counters.
///
/// A damaged head also stays: its error says what to do.
pub(super) fn free_locks(db: &Connection) -> Result<(), Fault> {
    db.execute(
        "DELETE FROM members WHERE class IN (?1, ?2, ?3, ?4)",
        [HOLDER, WAITER, DESCRIPTION, WATCHER],
    )?;
    let heads = "SELECT namespace, tenant, name, value FROM heads";
    select(db, heads, [], |row| {
        let key = ["namespace", "tenant", "name"].map(|column| text(row, column));
        if let (Ok(head), [Ok(namespace), Ok(tenant), Ok(name)]) = (head_of(row), key)
            && let Body::Leases(_) = head.body
        {
            let free = Head {
                body: Body::Free,
                queue: QueueHead::default(),
                ..head
            };
            put_head(db, (namespace, tenant, name), &free)?;
        }
        Ok(())
    })
    .map(drop)
}

/// The head in a row of `heads`.
fn head_of(row: &rusqlite::Row<'_>) -> Result<Head, Fault> {
    Ok(read_head(text(row, "value")?)?)
}

/// The stored record of a name.
pub(super) struct StoredRecord<'a, F> {
    db: &'a Connection,
    key: &'a Key,
    reaches: F,
    /// The stored head, once it has been read.
    head: Head,
}

impl<F: FnMut(ClientId) -> bool> Source for StoredRecord<'_, F> {
    type Error = Fault;

    fn head(&mut self) -> Result<Head, Fault> {
        let (namespace, tenant, name) = columns(self.key);
        let mut heads = select(
            self.db,
            "SELECT value FROM heads WHERE namespace = ?1 AND tenant = ?2 AND name = ?3",
            [namespace, tenant, name],
            head_of,
        )?;
        self.head = heads.pop().unwrap_or_default();
        Ok(self.head)
    }

    fn row(&mut self, part: &Part) -> Result<Option<Row>, Fault> {
        let (namespace, tenant, name) = columns(self.key);
        let mut members = select(
            self.db,
            "SELECT value, place FROM members
             WHERE class = ?4 AND namespace = ?1 AND tenant = ?2 AND name = ?3 AND id = ?5",
            params![namespace, tenant, name, class(part), part.id()],
            |row| member(part, row),
        )?;
        Ok(members.pop())
    }

    fn holders(&mut self) -> Result<Vec<Holder>, Fault> {
        let (namespace, tenant, name) = columns(self.key);
        let mut holders = select(
            self.db,
            "SELECT id, value, place FROM members
             WHERE class = ?4 AND namespace = ?1 AND tenant = ?2 AND name = ?3",
            params![namespace, tenant, name, HOLDER],
            |row| match member(&Part::Holder(lease(row)?), row)? {
                Row::Holder(holder) => Ok(holder),
                _ => Err(DamagedText(Damage::Lock, "holder").into()),
            },
        )?;
        // As everywhere: the texts of leases have another order.
        holders.sort_by_key(|holder| holder.lease);
        Ok(holders)
    }

    fn waiter_from(&mut self, place: u64) -> Result<Option<Waiter>, Fault> {
        let (namespace, tenant, name) = columns(self.key);
        let mut waiters = select(
            self.db,
            "SELECT id, value, place FROM members
             WHERE namespace = ?1 AND tenant = ?2 AND name = ?3 AND place >= ?4
             ORDER BY place LIMIT 1",
            params![namespace, tenant, name, signed(place)],
            |row| match member(&Part::Waiter(lease(row)?), row)? {
                Row::Waiter(waiter) => Ok(waiter),
                _ => Err(DamagedText(Damage::Lock, "waiter").into()),
            },
        )?;
        Ok(waiters.pop())
    }

    fn waiters_between(&mut self, from: u64, to: u64) -> Result<u32, Fault> {
        let (namespace, tenant, name) = columns(self.key);
        let mut counts = select(
            self.db,
            "SELECT count(*) FROM members
             WHERE namespace = ?1 AND tenant = ?2 AND name = ?3 AND place >= ?4 AND place < ?5",
            params![namespace, tenant, name, signed(from), signed(to)],
            |row| Ok(row.get(0)?),
        )?;
        Ok(counts.pop().unwrap_or_default())
    }

    fn reaches(&mut self, client: ClientId) -> Result<bool, Fault> {
        Ok((self.reaches)(client))
    }
}

impl<F: FnMut(ClientId) -> bool> Record for StoredRecord<'_, F> {
    fn waiting(&mut self, _: &Environment, max: usize) -> Result<Vec<LeaseId>, Fault> {
        let (namespace, tenant, name) = columns(self.key);
        let leases = select(
            self.db,
            "SELECT id FROM members
             WHERE namespace = ?1 AND tenant = ?2 AND name = ?3 AND place >= 0
             ORDER BY place LIMIT ?4",
            params![namespace, tenant, name, max.cast_signed()],
            |row| Ok(lease(row).ok()),
        )?;
        Ok(leases.into_iter().flatten().collect())
    }

    fn store(&mut self, changes: Changes) -> Result<(), Fault> {
        self.store_changes(changes)
    }

    fn repair(&mut self, op: &Op, fault: Fault) -> Result<(), Fault> {
        match fault {
            Fault::Damaged(DamagedText(damage, _)) if self.repair_damage(op, damage)? => Ok(()),
            fault => Err(fault),
        }
    }
}

impl<F: FnMut(ClientId) -> bool> Table for StoredRecord<'_, F> {
    fn stored_head(&mut self) -> Result<Head, Fault> {
        Ok(self.head)
    }

    fn put_head(&mut self, head: Head) -> Result<(), Fault> {
        put_head(self.db, columns(self.key), &head)
    }

    fn put(&mut self, part: &Part, row: Row) -> Result<(), Fault> {
        let (namespace, tenant, name) = columns(self.key);
        let (class, id, place, value) = (class(part), part.id(), place(&row), row.to_text());
        let until = row.kept_until().map(|until| signed(until.as_micros()));
        execute(
            self.db,
            "INSERT OR REPLACE INTO members (namespace, tenant, name, class, id, place, value, until)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![namespace, tenant, name, class, id, place, value, until],
        )
    }

    fn remove(&mut self, part: &Part) -> Result<(), Fault> {
        let (namespace, tenant, name) = columns(self.key);
        execute(
            self.db,
            "DELETE FROM members
             WHERE class = ?4 AND namespace = ?1 AND tenant = ?2 AND name = ?3 AND id = ?5",
            params![namespace, tenant, name, class(part), part.id()],
        )
    }

    fn clear(&mut self, class: u8) -> Result<(), Fault> {
        let (namespace, tenant, name) = columns(self.key);
        execute(
            self.db,
            "DELETE FROM members
             WHERE class = ?4 AND namespace = ?1 AND tenant = ?2 AND name = ?3",
            params![namespace, tenant, name, class],
        )
    }
}

impl<'a, F> StoredRecord<'a, F> {
    pub(super) fn new(db: &'a Connection, key: &'a Key, reaches: F) -> Self {
        Self {
            db,
            key,
            reaches,
            head: Head::default(),
        }
    }
}

/// Executes a statement without rows.
pub(super) fn execute(db: &Connection, sql: &str, params: impl Params) -> Result<(), Fault> {
    db.prepare_cached(sql)?.execute(params)?;
    Ok(())
}

/// Reads all rows of a statement.
pub(super) fn select<T>(
    db: &Connection,
    sql: &str,
    params: impl Params,
    mut read: impl FnMut(&rusqlite::Row<'_>) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

fn put_head(
    db: &Connection,
    (namespace, tenant, name): (&str, &str, &str),
    head: &Head,
) -> Result<(), Fault> {
    let until = signed(head.kept_until().as_micros());
    execute(
        db,
        "INSERT INTO heads (namespace, tenant, name, value, until) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (namespace, tenant, name) DO UPDATE
         SET value = excluded.value, until = excluded.until",
        params![namespace, tenant, name, head.to_text(), until],
    )
}

/// The row of a member.
fn member(part: &Part, row: &rusqlite::Row<'_>) -> Result<Row, Fault> {
    let damaged = |word| DamagedText(Damage::of(part), word);
    let value = text(row, "value").map_err(|DamagedText(_, word)| damaged(word))?;
    let place = row.get("place").map_err(|_| damaged("place"))?;
    Ok(read_member(part, value, place)?)
}

fn lease(row: &rusqlite::Row<'_>) -> Result<LeaseId, Fault> {
    let lease = text(row, "id")?.parse();
    lease.map_err(|_| DamagedText(Damage::Lock, "lease").into())
}

pub(super) fn text<'a>(row: &'a rusqlite::Row<'_>, column: &str) -> Result<&'a str, DamagedText> {
    let value = row
        .get_ref(column)
        .ok()
        .and_then(|value| value.as_str().ok());
    value.ok_or(DamagedText(Damage::Lock, "text"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::record::{self, Outcome};
    use leasehold_core::{Acquire, ArrivalId, LatchCount, StoreTime, Ttl};

    use super::*;
    use crate::store::api::fixture;
    use crate::store::sqlite::schema::TABLES;

    /// Applies an operation to a name. Returns its outcome, and how many rows it has written.
    fn apply(db: &Connection, op: &Op) -> (Outcome, u64) {
        let (key, before) = (fixture::key("a"), db.total_changes());
        let mut record = StoredRecord::new(db, &key, |_| true);
        let environment = Environment::at(StoreTime::from_micros(1_000_000));
        let applied = record::apply(&mut record, op, &environment).unwrap();
        record.store(applied.changes).unwrap();
        (applied.outcome, db.total_changes() - before)
    }

    fn database() -> Connection {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(TABLES).unwrap();
        db
    }

    #[test]
    fn an_uncontended_mutex_is_one_row_that_is_written_once() {
        let (db, lease) = (database(), fixture::lease(1));
        let acquire = Op::Acquire(Acquire::mutex(lease, Ttl::MAX));
        for op in [acquire, Op::release(lease)] {
            assert_eq!(apply(&db, &op).1, 1);
        }
    }

    #[test]
    fn an_arrival_writes_two_rows_however_many_have_arrived() {
        let (db, count) = (database(), LatchCount::new(LatchCount::MAX).unwrap());
        for number in 0..LatchCount::MAX {
            let id = ArrivalId::parse(&number.to_string()).unwrap();
            let keep = Duration::from_secs(1);
            let (outcome, written) = apply(&db, &Op::Arrive { id, count, keep });
            assert!(matches!(outcome, Outcome::Arrived(status) if status.arrived == number + 1));
            assert_eq!(written, 2);
        }
    }
}
