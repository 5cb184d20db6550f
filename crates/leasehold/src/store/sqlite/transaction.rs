//! One transaction, and the meaning of its failure.

use leasehold_core::Instant;
use rusqlite::Connection;

use super::busy;
use super::error::Fault;

/// Why a transaction failed.
#[derive(Debug)]
pub(super) struct Failed {
    /// The fault.
    pub(super) fault: Fault,
    /// Whether it may nevertheless have been applied, or may still be.
    pub(super) undetermined: bool,
}

/// Runs `work` in an exclusive write transaction. Waits until `until` for those of other processes.
pub(super) fn run<T>(
    db: &Connection,
    until: Instant,
    work: impl FnOnce(&Connection) -> Result<T, Fault>,
) -> Result<T, Failed> {
    busy::retry(until, || execute(db, "BEGIN IMMEDIATE")).map_err(Failed::certain)?;
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
    // After some errors SQLite has already done it. If it fails, the next transaction cannot begin, and
    // reports that.
    if !db.is_autocommit() {
        let _ = execute(db, "ROLLBACK");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rusqlite::params;

    use super::*;
    use crate::clock::BootClock;
    use crate::store::sqlite::boot::Machine;
    use crate::store::sqlite::file::File;
    use crate::{Error, ErrorKind};

    /// A limit on the pages of the file simulates a full disk.
    #[test]
    fn a_full_disk_undoes_the_transaction_and_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let machine = Machine::with_clock(Arc::new(BootClock)).unwrap();
        let file = File::open(&directory.path().join("locks.db"), &machine).unwrap();
        let db = &file.db;
        let pages = |limit: u32| {
            let limit = format!("PRAGMA max_page_count = {limit}");
            db.query_row(&limit, [], |row| row.get::<_, u32>(0))
                .unwrap()
        };
        let until = Instant::default();
        let fill = |rows: u32| {
            run(db, until, |db| {
                for number in 0..rows {
                    let mut insert = db.prepare_cached(
                        "INSERT INTO records (namespace, tenant, name) VALUES ('n', 't', ?1)",
                    )?;
                    insert.execute(params![format!("{number:0500}")])?;
                }
                Ok(())
            })
        };
        pages(1);
        let failed = fill(100).unwrap_err();
        assert!(!failed.undetermined);
        let error = Error::from(failed.fault);
        assert_eq!(error.kind(), ErrorKind::Store);
        assert_eq!(error.to_string(), "the disk is full; make room on it");
        pages(1_000_000);
        fill(100).unwrap();
        let count = "SELECT count(*) FROM records";
        assert_eq!(db.query_row(count, [], |row| row.get(0)), Ok(100));
    }
}
