//! Opens, checks and creates the file.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior, ffi};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use super::boot::Machine;
use super::error::{Fault, failure};
use super::liveness::LivenessLock;
use super::opened::OpenConnection;
use super::{path, schema, time};
use crate::error::invalid;
use crate::store::diagnose::FileSystem;
use crate::store::lock::lock;
use crate::{Error, ErrorKind};

/// The capacity of the cache of prepared statements: more than there are.
const STATEMENTS_MAX: usize = 48;

/// One file at a time is opened in this process; see [`path::prepare`].
static OPENING: Mutex<()> = Mutex::new(());

/// An open file.
#[derive(Debug)]
pub(super) struct File {
    /// The connection to it.
    pub(super) db: Connection,
    /// Its path without symbolic links.
    pub(super) path: PathBuf,
    /// This machine, under the boot id with which the file is used.
    pub(super) machine: Machine,
    /// After the connection, so that it is dropped later.
    pub(super) liveness: LivenessLock,
    open: OpenConnection,
}

impl File {
    /// Opens the file, and creates it if it is missing.
    ///
    /// If another process has it locked at this moment, the fault is busy.
    pub(super) fn open(path: &Path, machine: &Machine) -> Result<Self, Fault> {
        let _one = lock(&OPENING);
        refuse_faulty_library(rusqlite::version_number())?;
        path::prepare(path)?;
        let open = OpenConnection::to(path)?;
        refuse_foreign(path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut db = Connection::open_with_flags(path, flags)?;
        db.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        // Retries are made here, with shorter intervals than those of SQLite.
        db.busy_timeout(Duration::ZERO)?;
        if is_read_only(path) {
            // SQLite opens such a file, and would fail at the first lock.
            return Err(failure(ffi::SQLITE_READONLY));
        }
        db.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;")?;
        create_tables(&mut db)?;
        set_up(&db)?;
        let mut liveness = LivenessLock::of(path)?;
        let machine = join(&mut db, &mut liveness, path, machine)?;
        Ok(Self {
            db,
            path: path::real(path),
            machine,
            liveness,
            open,
        })
    }

    /// Makes a checkpoint, so that the next transaction reuses the space of the log: a full disk must not prevent
    /// renewals and releases. Returns the number of pages in the log, and of those that are written back: a reader
    /// that needs old pages prevents the rest.
    pub(super) fn write_log_back(&self) -> Option<(i64, i64)> {
        let checkpoint = "PRAGMA wal_checkpoint(PASSIVE)";
        let pages = |row: &rusqlite::Row<'_>| Ok((row.get(1)?, row.get(2)?));
        let written = self.db.query_row(checkpoint, [], pages);
        written
            .inspect_err(
                |error| tracing::debug!(%error, "the log of the store cannot be written back"),
            )
            .ok()
    }

    /// Whether this is still the file at the path. If it was deleted or replaced, its locks exclude no other process.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        self.open.0 == path::identity(path)
    }
}

/// Refuses versions of SQLite with the WAL-reset bug (<https://sqlite.org/wal.html#the_wal_reset_bug>): a checkpoint may
/// lose what another process commits at the same time.
fn refuse_faulty_library(version: i32) -> Result<(), Error> {
    match version {
        3_044_006..3_045_000 | 3_050_007..3_051_000 | 3_051_003.. => Ok(()),
        _ => Err(Error::new(
            ErrorKind::Unsupported,
            "the SQLite that this program links may lose locks (its WAL-reset bug); link SQLite 3.51.3 or later, or \
             compile the program without LIBSQLITE3_SYS_USE_PKG_CONFIG",
        )),
    }
}

/// Whether the system lets this process read the file only. The functions of rusqlite for this question differ from
/// version to version.
fn is_read_only(path: &Path) -> bool {
    let access = match accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS) {
        // An old container runtime denies the newer system call that this needs.
        Err(Errno::PERM) => accessat(CWD, path, Access::WRITE_OK, AtFlags::empty()),
        access => access,
    };
    matches!(access, Err(Errno::ACCESS | Errno::PERM | Errno::ROFS))
}

/// Joins the processes that have the file open, or sets its clock if there are none.
fn join(
    db: &mut Connection,
    liveness: &mut LivenessLock,
    path: &Path,
    machine: &Machine,
) -> Result<Machine, Fault> {
    if time::is_anchored(db, machine)? {
        liveness.share()?;
        // From here on no other process writes the anchor.
        if time::is_anchored(db, machine)? {
            return Ok(machine.clone());
        }
    }
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut machine = machine.clone();
    let alone = liveness.try_alone()?;
    if !time::is_anchored(&transaction, &machine)? {
        if alone {
            time::anchor(&transaction, &machine)?;
        } else if matches!(path::file_system(path), Ok(FileSystem::Foreign(_))) {
            // The lock may be that of another kernel, with another clock.
            return Err(Fault::OtherKernel);
        } else {
            machine.boot_id = time::joined_boot_id(&transaction, &machine)?;
        }
    }
    if !alone {
        // During the transaction no other process can become the only one.
        liveness.share()?;
    }
    transaction.commit()?;
    // Not earlier: no process must join by the old anchor.
    liveness.share()?;
    Ok(machine)
}

/// Refuses a file that is certainly not ours, without changing anything: no lock is taken, no file is created
/// beside it, nothing is recovered.
fn refuse_foreign(path: &Path) -> Result<(), Fault> {
    let empty = std::fs::metadata(path).map_or(0, |meta| meta.len()) == 0;
    // A journal remains if the process that created the file was killed. SQLite rolls back, and the result is
    // checked later.
    if empty || path::beside(path, "-journal").exists() {
        return Ok(());
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(immutable_uri(path), flags)?;
    match application_id(&db) {
        Ok(schema::APPLICATION_ID) => Ok(()),
        // An empty database. With a log it is foreign: ours has its id before it has a log.
        Ok(0) if !path::beside(path, "-wal").exists() && is_empty(&db)? => Ok(()),
        Ok(_) => Err(foreign().into()),
        Err(fault) if fault.is_foreign() => Err(fault),
        // Another process writes the file at this moment, or it is damaged: detected later.
        Err(_) => Ok(()),
    }
}

/// Creates the tables in an empty file, or checks that they exist.
///
/// This happens before the file is in WAL mode, so that its header identifies it from the beginning.
fn create_tables(db: &mut Connection) -> Result<(), Fault> {
    if application_id(db)? != schema::APPLICATION_ID {
        let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if application_id(&transaction)? == 0 {
            if !is_empty(&transaction)? {
                return Err(foreign().into());
            }
            transaction.execute_batch(schema::TABLES)?;
            transaction.pragma_update(None, "application_id", schema::APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", schema::VERSION)?;
        }
        transaction.commit()?;
    }
    if application_id(db)? != schema::APPLICATION_ID {
        return Err(foreign().into());
    }
    let version: i32 = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    match version {
        schema::VERSION => Ok(()),
        newer if newer > schema::VERSION => Err(invalid(format!(
            "the file was made by a newer leasehold (format {newer}, this one knows {}); \
             upgrade this one or choose another path",
            schema::VERSION
        ))
        .into()),
        older @ 1.. => Err(invalid(format!(
            "the file was made by an older leasehold (format {older}, this one knows {}); stop the \
             programs that use it and delete it, with its locks, latches and records of completed runs",
            schema::VERSION
        ))
        .into()),
        _ => Err(failure(ffi::SQLITE_CORRUPT)),
    }
}

fn set_up(db: &Connection) -> Result<(), Fault> {
    let mode: String = db.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(invalid(
            "its file system cannot share memory between processes; choose a path on a local disk",
        )
        .into());
    }
    // Acknowledged changes survive a power failure: a token must never be issued twice. The log is
    // written back after 4 MB, and truncated if a reader let it grow.
    db.execute_batch(
        "PRAGMA synchronous = FULL;
         PRAGMA fullfsync = ON;
         PRAGMA wal_autocheckpoint = 1000;
         PRAGMA journal_size_limit = 16777216;
         PRAGMA temp_store = MEMORY;",
    )?;
    Ok(())
}

fn application_id(db: &Connection) -> Result<i32, Fault> {
    Ok(db.query_row("PRAGMA application_id", [], |row| row.get(0))?)
}

fn is_empty(db: &Connection) -> Result<bool, Fault> {
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(tables == 0)
}

fn immutable_uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        uri.push_str(&format!("%{byte:02x}"));
    }
    uri.push_str("?immutable=1");
    uri
}

fn foreign() -> Error {
    invalid(
        "the file is the database of another program; it was left as it is, choose another path",
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::BootClock;

    #[test]
    fn versions_of_sqlite_that_lose_transactions_are_refused() {
        for (version, accepted) in [
            (3_044_005, false),
            (3_044_006, true),
            (3_045_000, false),
            (3_050_006, false),
            (3_050_007, true),
            (3_051_002, false),
            (3_051_003, true),
            (3_054_001, true),
        ] {
            let checked = refuse_faulty_library(version);
            assert_eq!(checked.is_ok(), accepted, "{version}");
        }
    }

    #[test]
    fn what_was_acknowledged_survives_a_power_failure() {
        let directory = tempfile::tempdir().unwrap();
        let machine = Machine::with_clock(Arc::new(BootClock)).unwrap();
        let file = File::open(&directory.path().join("locks.db"), &machine).unwrap();
        let ask = |pragma: &str| file.db.query_row(pragma, [], |row| row.get::<_, i64>(0));
        // FULL: the log is synced at each commit. No test can cut the power.
        assert_eq!(ask("PRAGMA synchronous"), Ok(2));
    }
}
