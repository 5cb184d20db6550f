//! The store's clock: the same for every process, and never set back.
//!
//! Now is `anchor` plus the uptime of the machine. The first process after a boot writes the anchor, so that
//! the time of the store continues near the wall clock; all others read it. Setting the wall clock changes
//! nothing, and suspend counts. Where the system has no boot ids, now is the wall clock, and setting it moves
//! leases.
//!
//! The boot id alone does not identify a boot: containers may have boot ids of their own. So the anchor is
//! written only by a process that has the file open alone. All others join: a process that is known to live
//! runs under the same kernel, and its anchor is right for all.
//!
//! `high` is larger than every time returned so far. It is written ahead, so that it costs a write only
//! every [`AHEAD`]. The time never falls behind it by more than that, whatever a clock shows; and after a
//! boot it begins there if the wall clock is behind.

use leasehold_core::StoreTime;
use rusqlite::{Connection, OptionalExtension as _, ffi, params};

use super::boot::Machine;
use super::error::{Fault, failure};
use super::rows;

/// How far `high` is written ahead, in microseconds: 10 s.
pub(super) const AHEAD: i64 = 10_000_000;

/// How far the anchor may be from the wall clock under one kernel, in microseconds: it is written up to
/// [`AHEAD`] too large, and the wall clock is corrected by seconds. Two boots are farther apart; otherwise the
/// leases run to their end.
const WALL_DRIFT: u64 = AHEAD.unsigned_abs() + 5_000_000;

/// The time, for reads.
pub(super) fn now(db: &Connection, machine: &Machine) -> Result<StoreTime, Fault> {
    Ok(store_time(Meta::read(db, machine)?.now(machine)))
}

/// The time, inside a write transaction. Called once per transaction: all its requests were sent before, so
/// one time is right for all.
pub(super) fn tick(db: &Connection, machine: &Machine) -> Result<StoreTime, Fault> {
    let meta = Meta::read(db, machine)?;
    let now = meta.now(machine);
    if now >= meta.high {
        let high = now.saturating_add(AHEAD);
        rows::execute(db, "UPDATE meta SET high = ?1", [high])?;
    }
    Ok(store_time(now))
}

/// Whether the anchor is of this boot, as far as the boot id and the clock show.
pub(super) fn is_anchored(db: &Connection, machine: &Machine) -> Result<bool, Fault> {
    let meta = Meta::find(db)?;
    Ok(meta.is_some_and(|meta| meta.boot_id == machine.boot_id && meta.may_be_now(machine)))
}

/// Sets the anchor to this boot, for a process that has the file open alone. If the machine was restarted, no
/// holder, no waiter and no observer lives, so all locks are freed. All else stays. Inside a transaction.
pub(super) fn anchor(db: &Connection, machine: &Machine) -> Result<(), Fault> {
    let meta = Meta::find(db)?;
    if meta
        .as_ref()
        .is_some_and(|meta| meta.is_same_start(machine))
    {
        db.execute("UPDATE meta SET boot_id = ?1", [&machine.boot_id])?;
        return Ok(());
    }
    let start = machine.wall().max(meta.map_or(0, |meta| meta.high));
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
    rows::free_locks(db)?;
    Ok(())
}

/// The boot id under which other processes have the file open, for a process of the same kernel that joins
/// them.
pub(super) fn joined_boot_id(db: &Connection, machine: &Machine) -> Result<Option<String>, Fault> {
    match Meta::find(db)? {
        Some(meta) if meta.boot_id == machine.boot_id || meta.may_be_now(machine) => {
            Ok(meta.boot_id)
        }
        // The file is locked by a program that does not use this library.
        _ => Err(failure(ffi::SQLITE_BUSY)),
    }
}

struct Meta {
    boot_id: Option<String>,
    anchor: i64,
    high: i64,
}

impl Meta {
    fn find(db: &Connection) -> Result<Option<Self>, Fault> {
        let mut statement = db.prepare_cached("SELECT boot_id, anchor, high FROM meta")?;
        let meta = statement.query_row([], |row| {
            Ok(Self {
                boot_id: row.get(0)?,
                anchor: row.get(1)?,
                high: row.get(2)?,
            })
        });
        Ok(meta.optional()?)
    }

    fn read(db: &Connection, machine: &Machine) -> Result<Self, Fault> {
        match Self::find(db)? {
            Some(meta) if meta.boot_id == machine.boot_id => Ok(meta),
            Some(_) => Err(Fault::OtherKernel),
            None => Err(rusqlite::Error::QueryReturnedNoRows.into()),
        }
    }

    fn now(&self, machine: &Machine) -> i64 {
        let now = match machine.boot_id {
            Some(_) => self.by_anchor(machine),
            None => machine.wall(),
        };
        now.max(self.high.saturating_sub(AHEAD))
    }

    fn by_anchor(&self, machine: &Machine) -> i64 {
        self.anchor.saturating_add(machine.uptime())
    }

    /// `false` if the machine was certainly restarted since the anchor was written: its clock shows less than
    /// before.
    fn may_be_now(&self, machine: &Machine) -> bool {
        machine.boot_id.is_none() || self.by_anchor(machine) >= self.high.saturating_sub(AHEAD)
    }

    /// Whether the machine was booted at the time of the anchor, so that only the container is another one.
    /// Then leases of killed processes run to their end.
    fn is_same_start(&self, machine: &Machine) -> bool {
        let apart = self.by_anchor(machine).abs_diff(machine.wall());
        self.may_be_now(machine) && apart <= WALL_DRIFT
    }
}

fn store_time(micros: i64) -> StoreTime {
    StoreTime::from_micros(u64::try_from(micros).unwrap_or(0))
}
