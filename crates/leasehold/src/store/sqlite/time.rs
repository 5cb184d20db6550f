//! The store's clock: the same for every process, and never set back.
//!
//! Now is `anchor` + how long the machine runs. The first process after a start of the machine
//! writes the anchor, so that the store's time continues near the wall clock; all others read it.
//! Setting the wall clock moves nothing, and suspend counts. Where the system cannot tell one start
//! from another, now is the wall clock, and setting it moves leases.
//!
//! `high` is larger than every time given out so far. It is written ahead, so that it costs a
//! write only every [`AHEAD`]. The time never falls behind it by more than that, whatever a clock
//! shows; and after a start of the machine it begins there if the wall clock is behind.

use leasehold_core::StoreTime;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::fault::Fault;
use super::machine::Machine;

/// How far `high` is written ahead, in microseconds: 10 s.
pub(super) const AHEAD: i64 = 10_000_000;

/// The time, for those who only look.
pub(super) fn now(db: &Connection, machine: &Machine) -> Result<StoreTime, Fault> {
    Ok(store_time(Meta::read(db, machine)?.now(machine)))
}

/// The time, inside a transaction that writes. To be asked for once in it: all that is asked of a
/// transaction was sent before, so one time is right for all.
pub(super) fn tick(db: &Connection, machine: &Machine) -> Result<StoreTime, Fault> {
    let meta = Meta::read(db, machine)?;
    let now = meta.now(machine);
    if now >= meta.high {
        db.prepare_cached("UPDATE meta SET high = ?1")?
            .execute([now.saturating_add(AHEAD)])?;
    }
    Ok(store_time(now))
}

/// Whether the anchor was written since the machine was started.
pub(super) fn is_anchored(db: &Connection, machine: &Machine) -> Result<bool, Fault> {
    match Meta::read(db, machine) {
        Ok(_) => Ok(true),
        Err(Fault::OtherKernel | Fault::Sqlite(rusqlite::Error::QueryReturnedNoRows)) => Ok(false),
        Err(fault) => Err(fault),
    }
}

/// Writes the anchor of this start of the machine. Whoever held a lock or waited for it
/// before is dead, so all are free. Inside a transaction.
pub(super) fn anchor(db: &Connection, machine: &Machine) -> Result<(), Fault> {
    let high: Option<i64> = db
        .query_row("SELECT high FROM meta", [], |row| row.get(0))
        .optional()?;
    let start = machine.wall().max(high.unwrap_or(0));
    db.execute(
        "INSERT INTO meta (id, boot_id, anchor, high) VALUES (1, ?1, ?2, ?3)
         ON CONFLICT (id) DO UPDATE
         SET boot_id = excluded.boot_id, anchor = excluded.anchor, high = excluded.high",
        params![
            machine.boot_id,
            start.saturating_sub(machine.uptime()),
            start.saturating_add(AHEAD)
        ],
    )?;
    db.execute(
        "UPDATE records
         SET client = NULL, number = NULL, count = NULL, expires_at = NULL, queue_until = NULL
         WHERE client IS NOT NULL OR queue_until IS NOT NULL",
        [],
    )?;
    db.execute("DELETE FROM waiters", [])?;
    db.execute("DELETE FROM clients", [])?;
    Ok(())
}

struct Meta {
    anchor: i64,
    high: i64,
}

impl Meta {
    fn read(db: &Connection, machine: &Machine) -> Result<Self, Fault> {
        let mut statement = db.prepare_cached("SELECT boot_id, anchor, high FROM meta")?;
        let (boot_id, meta) = statement.query_row([], |row| {
            let boot_id: Option<String> = row.get(0)?;
            let (anchor, high) = (row.get(1)?, row.get(2)?);
            Ok((boot_id, Self { anchor, high }))
        })?;
        if boot_id == machine.boot_id {
            Ok(meta)
        } else {
            Err(Fault::OtherKernel)
        }
    }

    fn now(&self, machine: &Machine) -> i64 {
        let now = match machine.boot_id {
            Some(_) => self.anchor.saturating_add(machine.uptime()),
            None => machine.wall(),
        };
        now.max(self.high.saturating_sub(AHEAD))
    }
}

fn store_time(micros: i64) -> StoreTime {
    StoreTime::from_micros(u64::try_from(micros).unwrap_or(0))
}
