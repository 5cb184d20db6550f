//! One transaction, and the meaning of its failure.

use leasehold_core::Instant;
use rusqlite::Connection;

use super::busy;
use super::error::Fault;
use super::rows::execute;

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
    busy::retry(until, || execute(db, "BEGIN IMMEDIATE", [])).map_err(Failed::certain)?;
    match work(db) {
        Ok(value) => match execute(db, "COMMIT", []) {
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

fn roll_back(db: &Connection) {
    // After some errors SQLite has already done it. If it fails, the next transaction cannot begin, and
    // reports that.
    if !db.is_autocommit() {
        let _ = execute(db, "ROLLBACK", []);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, ErrorKind};

    /// A limit on the pages simulates a full disk.
    #[test]
    fn a_full_disk_undoes_the_transaction_and_is_reported() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE filler (x)").unwrap();
        let number = |sql: &str| db.query_row(sql, [], |row| row.get::<_, u32>(0));
        let fill = || {
            run(&db, Instant::default(), |db| {
                let fill = "INSERT INTO filler VALUES (1), (zeroblob(100000))";
                Ok(db.execute_batch(fill)?)
            })
        };
        number("PRAGMA max_page_count = 1").unwrap();
        let failed = fill().unwrap_err();
        assert!(!failed.undetermined);
        let error = Error::from(failed.fault);
        assert_eq!(error.kind(), ErrorKind::Store);
        assert_eq!(error.to_string(), "the disk is full; make room on it");
        number("PRAGMA max_page_count = 1000000").unwrap();
        fill().unwrap();
        assert_eq!(number("SELECT count(*) FROM filler"), Ok(2));
    }
}
