//! The size of the write-ahead log of SQLite.
//!
//! A reader that leaves a transaction open prevents checkpoints, so the log grows until the disk is full.

use std::fs;
use std::io;
use std::path::Path;

use super::file::File;
use super::path;
use crate::store::diagnose::LOG_MAX;

/// The number of transactions between two checks of the size, which cost a system call.
const TRANSACTIONS: u32 = 256;

/// Reports a log that is too large, once per growth.
#[derive(Debug, Default)]
pub(super) struct LogMonitor {
    transactions: u32,
    reported: bool,
}

impl LogMonitor {
    /// Counts a transaction. Logs a warning if the size is due to be checked and too large.
    pub(super) fn committed(&mut self, file: &File) {
        self.transactions += 1;
        if self.transactions < TRANSACTIONS {
            return;
        }
        self.transactions = 0;
        self.warn_if_large(file);
    }

    /// Logs a warning if the log is too large and that is new. Returns whether it did.
    fn warn_if_large(&mut self, file: &File) -> bool {
        let Ok(Some(bytes)) = size(&file.path) else {
            return false;
        };
        if bytes <= LOG_MAX {
            self.reported = false;
        }
        if bytes <= LOG_MAX || self.reported {
            return false;
        }
        let Some((pages, written_back)) = file.write_log_back() else {
            return false;
        };
        // If all pages were written back, the next transaction resets the log.
        self.reported = written_back < pages;
        if self.reported {
            tracing::warn!(
                path = %file.path.display(), bytes, pages, written_back,
                "the log of the store grows, because a reader keeps a transaction open (PRAGMA \
                 wal_checkpoint could not write all pages back); `fuser` on the file shows the \
                 processes that have it open, end the one that reads"
            );
        }
        self.reported
    }
}

/// The size of the log of a file in bytes. `None`: there is no log.
///
/// # Errors
///
/// If the log cannot be read.
pub(super) fn size(path: &Path) -> io::Result<Option<u64>> {
    match fs::metadata(path::beside(path, "-wal")) {
        Ok(log) => Ok(Some(log.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rusqlite::Connection;

    use super::*;
    use crate::clock::BootClock;
    use crate::store::sqlite::boot::Machine;

    #[test]
    fn a_log_that_a_reader_lets_grow_is_reported_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("locks.db");
        let machine = Machine::with_clock(Arc::new(BootClock)).unwrap();
        let file = File::open(&path, &machine).unwrap();
        let setup = "PRAGMA synchronous = OFF; CREATE TABLE filler (x)";
        file.db.execute_batch(setup).unwrap();
        let reader = Connection::open(&path).unwrap();
        let mut monitor = LogMonitor::default();
        for _ in 0..2 {
            reader.execute_batch("BEGIN; SELECT * FROM filler").unwrap();
            assert!(!monitor.warn_if_large(&file));
            let fill = "INSERT INTO filler VALUES (zeroblob(4194304)); DELETE FROM filler";
            while size(&path).unwrap().unwrap() <= LOG_MAX {
                file.db.execute_batch(fill).unwrap();
            }
            assert!(monitor.warn_if_large(&file));
            file.db.execute_batch(fill).unwrap();
            assert!(!monitor.warn_if_large(&file), "reported twice");
            // The log is truncated when it is reset.
            reader.execute_batch("COMMIT").unwrap();
            file.write_log_back().unwrap();
            file.db.execute_batch(fill).unwrap();
        }
    }
}
