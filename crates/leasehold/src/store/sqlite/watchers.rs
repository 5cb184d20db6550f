//! The clients that observe names, as members.
//!
//! A store that observes registers one client of its own for each name, and notifies its observers when that client
//! receives an event. A registration ends by time, so nothing remains of a killed process.

use std::time::Duration;

use leasehold_core::{ClientId, StoreTime};
use rusqlite::{Connection, Params, params};

use super::error::Fault;
use super::notify::{Outbox, Registration};
use super::rows::{execute, select};
use crate::store::api::Key;
use crate::store::rows::class::WATCHER;
use crate::store::tables::{columns, signed};

/// How long a client is registered.
const REGISTRATION: Duration = Duration::from_secs(60);

/// The time before its end at which a registration is renewed.
const RENEWAL: Duration = Duration::from_secs(30);

/// Registers a client for a name, inside a transaction.
pub(super) fn register(
    db: &Connection,
    key: &Key,
    client: ClientId,
    now: StoreTime,
) -> Result<(), Fault> {
    let until = signed(now.after_span(REGISTRATION).as_micros());
    execute(
        db,
        "INSERT INTO members (class, namespace, tenant, name, id, value, until)
         VALUES (?1, ?2, ?3, ?4, ?5, '', ?6)
         ON CONFLICT (class, namespace, tenant, name, id) DO UPDATE SET until = excluded.until",
        parameters(key, client, until),
    )
}

/// Whether a client is registered for a name, and need not be renewed yet.
pub(super) fn is_registered(
    db: &Connection,
    key: &Key,
    client: ClientId,
    now: StoreTime,
) -> Result<bool, Fault> {
    let until = signed(now.after_span(RENEWAL).as_micros());
    Ok(db
        .prepare_cached(
            "SELECT 1 FROM members
             WHERE class = ?1 AND namespace = ?2 AND tenant = ?3 AND name = ?4 AND id = ?5
               AND until > ?6",
        )?
        .exists(parameters(key, client, until))?)
}

/// Adds a change of a name to the outbox, for each client of another store that observes it.
pub(super) fn notify(
    db: &Connection,
    key: &Key,
    now: StoreTime,
    outbox: &mut Outbox<'_>,
) -> Result<(), Fault> {
    if !outbox.has_watchers(|| any(db))? {
        return Ok(());
    }
    // One that lives reads again soon, and is registered again with its socket.
    for registration in outbox.take_unreachable() {
        unregister(db, &registration)?;
    }
    let (namespace, tenant, name) = columns(key);
    let now = signed(now.as_micros());
    select(
        db,
        "SELECT id, until FROM members
         WHERE class = ?1 AND namespace = ?2 AND tenant = ?3 AND name = ?4 AND until > ?5",
        params![WATCHER, namespace, tenant, name, now],
        |row| {
            // A client that cannot be read is not one of ours.
            if let Some(client) = row.get_ref(0)?.as_str().ok().and_then(|id| id.parse().ok()) {
                outbox.add_change(client, key, row.get(1)?);
            }
            Ok(())
        },
    )
    .map(drop)
}

/// Removes a registration, unless it was renewed.
fn unregister(db: &Connection, registration: &Registration) -> Result<(), Fault> {
    let Registration { client, key, until } = registration;
    execute(
        db,
        "DELETE FROM members
         WHERE class = ?1 AND namespace = ?2 AND tenant = ?3 AND name = ?4 AND id = ?5
           AND until = ?6",
        parameters(key, *client, *until),
    )
}

/// The class and the columns of the registration of a client, and a time.
fn parameters(key: &Key, client: ClientId, until: i64) -> impl Params {
    let (namespace, tenant, name) = columns(key);
    (WATCHER, namespace, tenant, name, client.to_string(), until)
}

/// Whether any name is observed: one read of a page for each transaction that changes something.
fn any(db: &Connection) -> Result<bool, Fault> {
    Ok(db
        .prepare_cached("SELECT 1 FROM members WHERE class = ?1 LIMIT 1")?
        .exists([WATCHER])?)
}
