//! Queues as rows, one per waiter. They are read only if the record has a queue.

use leasehold_core::{LeaseId, Queue, StoreTime, TokenCount, Ttl, Waiter};
use rusqlite::{Connection, params};

use super::error::Fault;
use super::row::{client_info, columns, get, signed};
use crate::store::api::{Key, View, WaiterInfo};

/// No queue that leasehold wrote has positions beyond this.
const POSITION_MAX: i64 = 1 << 53;

/// A row: a position and its waiter.
pub(super) type Row = (i64, Waiter);

/// The rows of a name, the head first.
pub(super) fn load(db: &Connection, key: &Key) -> Result<Vec<Row>, Fault> {
    let mut statement = db.prepare_cached(
        "SELECT position, client, number, ttl, tokens FROM waiters
         WHERE namespace = ?1 AND tenant = ?2 AND name = ?3 ORDER BY position",
    )?;
    let mut rows = statement.query(columns(key))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(parse(row)?);
    }
    Ok(found)
}

/// The first waiters of a name with their clients, for people.
pub(super) fn inspect(
    db: &Connection,
    key: &Key,
    now: StoreTime,
) -> Result<Vec<WaiterInfo>, Fault> {
    let mut statement = db.prepare_cached(
        "SELECT w.client, number, host, pid, program, label, since_ms
         FROM waiters AS w LEFT JOIN clients AS c ON c.client = w.client AND until > ?1
         WHERE namespace = ?2 AND tenant = ?3 AND name = ?4
         ORDER BY position",
    )?;
    let (namespace, tenant, name) = columns(key);
    let mut rows = statement.query(params![signed(now.as_micros()), namespace, tenant, name])?;
    let mut found = Vec::new();
    while found.len() < View::WAITERS_MAX
        && let Some(row) = rows.next()?
    {
        // A waiter that cannot be read hides no lock.
        found.extend(lease(row).ok().map(|lease| WaiterInfo {
            lease,
            client: client_info(row),
        }));
    }
    Ok(found)
}

/// How many wait.
pub(super) fn count(db: &Connection, key: &Key) -> Result<usize, Fault> {
    let mut statement = db.prepare_cached(
        "SELECT count(*) FROM waiters WHERE namespace = ?1 AND tenant = ?2 AND name = ?3",
    )?;
    let (namespace, tenant, name) = columns(key);
    let count: u32 = statement.query_row([namespace, tenant, name], |row| row.get(0))?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Stores the queue of a name. `before` are the stored rows; `None` if they are unknown.
pub(super) fn save(
    db: &Connection,
    key: &Key,
    before: Option<&[Row]>,
    queue: &Queue,
) -> Result<(), Fault> {
    let (namespace, tenant, name) = columns(key);
    let before = before.unwrap_or_default();
    if before.is_empty() {
        // Unknown rows must not appear in a new queue.
        db.prepare_cached(
            "DELETE FROM waiters WHERE namespace = ?1 AND tenant = ?2 AND name = ?3",
        )?
        .execute([namespace, tenant, name])?;
    }
    let mut waiters = queue.waiters().peekable();
    let mut end = 0;
    // Waiters that stay keep their order, and new ones are at the end.
    for (position, waiter) in before {
        end = position + 1;
        if waiters.next_if_eq(&waiter).is_none() {
            db.prepare_cached(
                "DELETE FROM waiters
                 WHERE namespace = ?1 AND tenant = ?2 AND name = ?3 AND position = ?4",
            )?
            .execute(params![namespace, tenant, name, position])?;
        }
    }
    for (waiter, position) in waiters.zip(end..) {
        db.prepare_cached(
            "INSERT INTO waiters (namespace, tenant, name, position, client, number, ttl, tokens)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            namespace,
            tenant,
            name,
            position,
            waiter.lease.client.to_string(),
            waiter.lease.number.cast_signed(),
            waiter.ttl.as_millis().cast_signed(),
            waiter.tokens.get(),
        ])?;
    }
    Ok(())
}

fn parse(row: &rusqlite::Row<'_>) -> Result<Row, Fault> {
    let position: i64 = get(row, "position")?;
    if !(0..POSITION_MAX).contains(&position) {
        return Err(Fault::Unreadable("position"));
    }
    let ttl = u64::try_from(get::<i64>(row, "ttl")?).ok();
    let waiter = Waiter {
        lease: lease(row)?,
        ttl: ttl
            .and_then(Ttl::from_millis)
            .ok_or(Fault::Unreadable("ttl"))?,
        tokens: TokenCount::new(get(row, "tokens")?).ok_or(Fault::Unreadable("tokens"))?,
    };
    Ok((position, waiter))
}

fn lease(row: &rusqlite::Row<'_>) -> Result<LeaseId, Fault> {
    let client: String = get(row, "client")?;
    Ok(LeaseId {
        client: client.parse().map_err(|_| Fault::Unreadable("client"))?,
        number: get::<i64>(row, "number")?.cast_unsigned(),
    })
}
