//! Records and clients as rows.

use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_core::{ClientId, LeaseId, Name, Queue, Record, RecordHolder, StoreTime, Token};
use rusqlite::{Connection, Row, params};

use super::error::Fault;
use super::row::{client_info, columns, get, signed, unsigned};
use super::waiters;
use crate::Error;
use crate::store::api::{ClientInfo, HolderInfo, Key, Keyspace, Parts, View};

/// The number of entries per page, so that a long list does not delay other commands.
const PAGE: u32 = 1_000;

/// The stored record of a name.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    /// The record; empty if none is stored.
    pub(super) record: Record,
    rows: Vec<waiters::Row>,
}

/// Reads the record of a name.
pub(super) fn load(db: &Connection, key: &Key) -> Result<Loaded, Fault> {
    let mut statement = db.prepare_cached(
        "SELECT client, number, count, expires_at, last_token, queue_until FROM records
         WHERE namespace = ?1 AND tenant = ?2 AND name = ?3",
    )?;
    let (namespace, tenant, name) = columns(key);
    let mut rows = statement.query([namespace, tenant, name])?;
    let Some(row) = rows.next()? else {
        return Ok(Loaded::default());
    };
    let mut loaded = Loaded {
        record: Record {
            hold: hold(row)?,
            last_token: last_token(row)?,
            queue: Queue::default(),
        },
        rows: Vec::new(),
    };
    if let Some(until) = unsigned(row, "queue_until")? {
        loaded.rows = waiters::load(db, key)?;
        let waiting = loaded.rows.iter().map(|(_, waiter)| *waiter);
        loaded.record.queue = Queue::restored(waiting, StoreTime::from_micros(until));
    }
    Ok(loaded)
}

/// Stores a record. `before` is what is stored; `None` if that is unreadable.
pub(super) fn save(
    db: &Connection,
    key: &Key,
    before: Option<&Loaded>,
    record: &Record,
) -> Result<(), Fault> {
    let mut statement = db.prepare_cached(
        "INSERT INTO records
             (namespace, tenant, name, client, number, count, expires_at, last_token, queue_until)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
         ON CONFLICT (namespace, tenant, name) DO UPDATE
         SET client = excluded.client, number = excluded.number, count = excluded.count,
             expires_at = excluded.expires_at, last_token = excluded.last_token,
             queue_until = excluded.queue_until",
    )?;
    let (namespace, tenant, name) = columns(key);
    let hold = record.hold.as_ref();
    statement.execute(params![
        namespace,
        tenant,
        name,
        hold.map(|hold| hold.lease.client.to_string()),
        // The integers of SQLite are signed; the bits are the same.
        hold.map(|hold| hold.lease.number.cast_signed()),
        hold.map(|hold| hold.count.get()),
        hold.map(|hold| signed(hold.expires_at.as_micros())),
        record.last_token.map(|token| signed(token.get())),
        (!record.queue.is_empty()).then(|| signed(record.queue.until().as_micros())),
    ])?;
    let waited = before.is_none_or(|before| !before.rows.is_empty());
    if waited || !record.queue.is_empty() {
        let rows = before.map(|before| before.rows.as_slice());
        waiters::save(db, key, rows, &record.queue)?;
    }
    Ok(())
}

/// Reads parts of the state of a lock.
pub(super) fn view(
    db: &Connection,
    key: &Key,
    parts: &Parts,
    now: StoreTime,
) -> Result<View, Fault> {
    let mut statement = db.prepare_cached(
        "SELECT r.client, number, count, expires_at, last_token, queue_until,
                host, pid, program, label, since_ms
         FROM records AS r LEFT JOIN clients AS c ON c.client = r.client AND until > ?1
         WHERE namespace = ?2 AND tenant = ?3 AND name = ?4",
    )?;
    let (namespace, tenant, name) = columns(key);
    let mut rows = statement.query(params![signed(now.as_micros()), namespace, tenant, name])?;
    match rows.next()? {
        Some(row) => parse_view(db, row, key.clone(), now, parts),
        None => Ok(View {
            now: Some(now),
            ..View::of(key.clone())
        }),
    }
}

/// The locks of a keyspace that are held, ordered by name: one page, which starts after a name. Also returns the name
/// after which the next page starts; `None` after the last page.
pub(super) fn list(
    db: &Connection,
    space: &Keyspace,
    after: &str,
    now: StoreTime,
) -> Result<(Vec<View>, Option<String>), Fault> {
    let mut statement = db.prepare_cached(
        "SELECT r.client, number, count, expires_at, last_token, queue_until,
                host, pid, program, label, since_ms, name
         FROM records AS r LEFT JOIN clients AS c ON c.client = r.client AND until > ?1
         WHERE namespace = ?2 AND tenant = ?3 AND name > ?4
         ORDER BY name LIMIT ?5",
    )?;
    let mut rows = statement.query(params![
        signed(now.as_micros()),
        space.namespace().as_str(),
        space.tenant().as_str(),
        after,
        PAGE
    ])?;
    let (mut views, mut seen, mut last) = (Vec::new(), 0, String::new());
    while let Some(row) = rows.next()? {
        last = get(row, "name")?;
        seen += 1;
        let name = Name::parse(&last).map_err(|_| Fault::Unreadable("its name"))?;
        let view = parse_view(db, row, space.key(name.clone()), now, &Parts::Waiters)
            .map_err(|fault| Error::from(fault).for_lock(&name))?;
        views.extend(Some(view).filter(|view| view.holder.is_some()));
    }
    Ok((views, (seen == PAGE).then_some(last)))
}

/// Stores the description of a client.
pub(super) fn register_client(
    db: &Connection,
    client: ClientId,
    info: &ClientInfo,
    ttl: Duration,
    now: StoreTime,
) -> Result<(), Fault> {
    let mut statement = db.prepare_cached(
        "INSERT INTO clients (client, host, pid, program, label, since_ms, until)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (client) DO UPDATE
         SET host = excluded.host, pid = excluded.pid, program = excluded.program,
             label = excluded.label, since_ms = excluded.since_ms, until = excluded.until",
    )?;
    let ttl = u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX);
    statement.execute(params![
        client.to_string(),
        info.host,
        info.pid,
        info.program,
        info.label,
        signed(info.since_millis()),
        signed(now.as_micros().saturating_add(ttl)),
    ])?;
    Ok(())
}

/// The description of a client.
pub(super) fn client(
    db: &Connection,
    client: ClientId,
    now: StoreTime,
) -> Result<Option<ClientInfo>, Fault> {
    let mut statement = db.prepare_cached(
        "SELECT host, pid, program, label, since_ms FROM clients WHERE client = ?1 AND until > ?2",
    )?;
    let mut rows = statement.query(params![client.to_string(), signed(now.as_micros())])?;
    Ok(rows.next()?.and_then(client_info))
}

/// The state of a lock by its row. The row is part of a read that has not ended: its queue is read at the same state of
/// the file.
fn parse_view(
    db: &Connection,
    row: &Row<'_>,
    key: Key,
    now: StoreTime,
    parts: &Parts,
) -> Result<View, Fault> {
    let mut view = View::of(key);
    view.now = Some(now);
    view.token = last_token(row)?;
    let hold = hold(row)?.filter(|hold| now < hold.expires_at);
    view.holder = hold.map(|hold| HolderInfo {
        lease: hold.lease,
        count: hold.count.get(),
        time_left: now.until(hold.expires_at),
        client: client_info(row),
    });
    if unsigned(row, "queue_until")?.is_some_and(|until| now.as_micros() < until) {
        match parts {
            Parts::Waiters => view.waiters = waiters::inspect(db, &view.key, now)?,
            Parts::State(_) => view.queue_length = waiters::count(db, &view.key)?,
            _ => {}
        }
    }
    Ok(view)
}

fn hold(row: &Row<'_>) -> Result<Option<RecordHolder>, Fault> {
    let Some(client) = get::<Option<String>>(row, "client")? else {
        return Ok(None);
    };
    let count: u32 = get(row, "count")?;
    let expires_at = unsigned(row, "expires_at")?.ok_or(Fault::Unreadable("expires_at"))?;
    Ok(Some(RecordHolder {
        lease: LeaseId {
            client: client.parse().map_err(|_| Fault::Unreadable("client"))?,
            number: get::<i64>(row, "number")?.cast_unsigned(),
        },
        count: NonZeroU32::new(count).ok_or(Fault::Unreadable("count"))?,
        expires_at: StoreTime::from_micros(expires_at),
    }))
}

fn last_token(row: &Row<'_>) -> Result<Option<Token>, Fault> {
    let token = |value| Token::new(value).ok_or(Fault::Unreadable("last_token"));
    unsigned(row, "last_token")?.map(token).transpose()
}
