//! A file of SQLite, which has no faults of its own.

use rusqlite::Connection;
use tempfile::TempDir;

use super::plan::Plan;
use super::{Sequence, Store, Timed, Usage};

/// The name of the file.
const FILE: &str = "locks.db";

/// A directory with the file.
impl Store for TempDir {
    // The tokens of a file have the time of its own clock.
    const HAS_TIMES: bool = false;

    fn start(_: &Plan) -> Self {
        tempfile::tempdir().unwrap()
    }

    fn url(&self, _: usize) -> String {
        format!("sqlite:{}", self.path().join(FILE).display())
    }

    fn inject(&self, _: &Sequence, timed: &Timed) {
        panic!("{:?} is not a fault of a file", timed.fault)
    }

    fn usage(&self) -> Usage {
        let file = Connection::open(self.path().join(FILE)).unwrap();
        let count = "SELECT (SELECT count(*) FROM heads) + (SELECT count(*) FROM members)";
        let rows: i64 = file.query_row(count, [], |row| row.get(0)).unwrap();
        Usage {
            pids: Vec::new(),
            data: vec![self.path().to_owned()],
            entries: Some(rows as usize),
        }
    }
}
