//! One transaction, and what it means if it fails.

use leasehold_core::Instant;
use rusqlite::Connection;

use super::fault::Fault;
use super::patience;

/// Why a transaction failed.
#[derive(Debug)]
pub(super) struct Failed {
    /// What happened.
    pub(super) fault: Fault,
    /// Whether it may have been applied in spite of it, or may yet be.
    pub(super) undetermined: bool,
}

/// Runs `work` in a transaction that no other process can disturb. Waits until `until` for others
/// to finish theirs.
pub(super) fn run<T>(
    db: &Connection,
    until: Instant,
    work: impl FnOnce(&Connection) -> Result<T, Fault>,
) -> Result<T, Failed> {
    patience::retry(until, || execute(db, "BEGIN IMMEDIATE")).map_err(Failed::certain)?;
    match work(db) {
        Ok(value) => match execute(db, "COMMIT") {
            Ok(()) => Ok(value),
            Err(fault) => {
                roll_back(db);
                Err(Failed {
                    undetermined: !fault.undoes_commit(),
                    fault,
                })
            }
        },
        Err(fault) => {
            roll_back(db);
            Err(Failed::certain(fault))
        }
    }
}

impl Failed {
    /// It was certainly not applied.
    pub(super) fn certain(fault: Fault) -> Self {
        Self {
            fault,
            undetermined: false,
        }
    }
}

fn execute(db: &Connection, sql: &str) -> Result<(), Fault> {
    db.prepare_cached(sql)?.execute([])?;
    Ok(())
}

fn roll_back(db: &Connection) {
    // SQLite has done it itself after some errors. If it cannot be done, the next transaction
    // cannot begin, and that is told then.
    if !db.is_autocommit() {
        let _ = execute(db, "ROLLBACK");
    }
}
