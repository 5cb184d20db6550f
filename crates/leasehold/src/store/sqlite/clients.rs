//! The clients that hold or wait, as rows for people.

use std::time::Duration;

use leasehold_core::{ClientId, StoreTime};
use rusqlite::{Connection, Row, params};

use super::error::Fault;
use super::row::signed;
use crate::store::api::ClientInfo;

/// Stores the description of a client.
pub(super) fn register(
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
    statement.execute(params![
        client.to_string(),
        info.host,
        info.pid,
        info.program,
        info.label,
        signed(info.since_millis()),
        signed(now.after_span(ttl).as_micros()),
    ])?;
    Ok(())
}

/// The description of a client.
pub(super) fn find(
    db: &Connection,
    client: ClientId,
    now: StoreTime,
) -> Result<Option<ClientInfo>, Fault> {
    let mut statement = db.prepare_cached(
        "SELECT host, pid, program, label, since_ms FROM clients WHERE client = ?1 AND until > ?2",
    )?;
    let mut rows = statement.query(params![client.to_string(), signed(now.as_micros())])?;
    Ok(rows.next()?.and_then(|row| info(row).ok()))
}

/// No rule depends on it, so it need not be readable.
fn info(row: &Row<'_>) -> rusqlite::Result<ClientInfo> {
    let mut info = ClientInfo {
        host: row.get("host")?,
        pid: row.get("pid")?,
        program: row.get("program")?,
        label: row.get("label")?,
        ..ClientInfo::default()
    };
    let since: i64 = row.get("since_ms")?;
    info.set_since_millis(since.unsigned_abs());
    Ok(info)
}
