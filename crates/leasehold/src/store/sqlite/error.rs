//! Faults of the file, and their errors.

use std::fs::File;
use std::io;

use rusqlite::{ErrorCode, ffi};
use rustix::io::Errno;

use crate::error::{Retry, invalid};
use crate::store::rows::DamagedText;
use crate::{Error, ErrorKind};

const OTHER_KERNEL: &str = "the file is used from another machine or virtual machine at the same time, \
    and a SQLite store is for one machine; use a Redis store";

/// A fault of the file.
#[derive(Debug)]
pub(super) enum Fault {
    /// An error of SQLite.
    Sqlite(rusqlite::Error),
    /// A record is damaged.
    Damaged(DamagedText),
    /// The file was last written under another kernel while this one had it open, or another kernel has it open
    /// while this one opens it.
    OtherKernel,
    /// An error found before SQLite was called.
    Found(Error),
}

impl Fault {
    /// Whether another process has the file locked, so that a retry may succeed.
    pub(super) fn is_busy(&self) -> bool {
        self.code().is_some_and(is_busy)
    }

    /// Whether the file is not a SQLite database.
    pub(super) fn is_foreign(&self) -> bool {
        self.code() == Some(ErrorCode::NotADatabase)
    }

    /// Whether the disk is full.
    pub(super) fn is_full(&self) -> bool {
        self.code() == Some(ErrorCode::DiskFull)
    }

    /// Whether reopening the file may fix it.
    pub(super) fn wants_reopening(&self) -> bool {
        matches!(self, Self::Sqlite(_)) && !self.is_busy() && !self.is_full()
    }

    /// The reply to operations of holders, if the fault means that the file has lost their leases: the other
    /// kernel has freed all locks.
    pub(super) fn lost(&self) -> Option<Error> {
        matches!(self, Self::OtherKernel).then(|| Error::new(ErrorKind::Lost, OTHER_KERNEL))
    }

    /// Whether a commit that failed with it was certainly undone.
    ///
    /// These faults occur before the last page of the transaction is written. After any other, the page that
    /// completes the transaction may exist and be found after a crash.
    pub(super) fn undoes_commit(&self) -> bool {
        let Self::Sqlite(error) = self else {
            return false;
        };
        // Not by `code`: the shared memory grows after that page is written.
        error.sqlite_error_code().is_some_and(|code| {
            is_busy(code) || matches!(code, ErrorCode::ReadOnly | ErrorCode::DiskFull)
        })
    }

    fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Sqlite(error) => code(error),
            Self::Damaged(_) | Self::OtherKernel | Self::Found(_) => None,
        }
    }
}

impl From<DamagedText> for Fault {
    fn from(damaged: DamagedText) -> Self {
        Self::Damaged(damaged)
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        let fault = Self::Sqlite(error);
        // SQLite does not report why it cannot open a file.
        let probed = match fault.code() {
            Some(ErrorCode::CannotOpen) => File::open("/dev/null").err(),
            _ => None,
        };
        match probed.as_ref().and_then(too_many_files) {
            Some(error) => Self::Found(error),
            None => fault,
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Found(error)
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Found(error) => error,
            Fault::Damaged(damaged) => damaged.into(),
            Fault::OtherKernel => Self::new(ErrorKind::Store, OTHER_KERNEL),
            Fault::Sqlite(error) => describe(&error).with_source(error),
        }
    }
}

/// A fault in the form of an error of SQLite.
pub(super) fn failure(code: i32) -> Fault {
    Fault::Sqlite(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None))
}

/// An error of the system: too many open files, or `otherwise`.
pub(super) fn of_system(error: io::Error, otherwise: impl FnOnce(&io::Error) -> Error) -> Error {
    let found = too_many_files(&error);
    found
        .unwrap_or_else(|| otherwise(&error))
        .with_source(error)
}

fn too_many_files(error: &io::Error) -> Option<Error> {
    let message = match Errno::from_io_error(error)? {
        Errno::MFILE => "this process has too many open files: raise ulimit -n",
        Errno::NFILE => "the system has too many open files: raise fs.file-max",
        _ => return None,
    };
    Some(Error::new(ErrorKind::Store, message))
}

/// The code of an error. Shared memory that cannot grow also means a full disk.
fn code(error: &rusqlite::Error) -> Option<ErrorCode> {
    match error.sqlite_error() {
        Some(error) if error.extended_code == ffi::SQLITE_IOERR_SHMSIZE => {
            Some(ErrorCode::DiskFull)
        }
        _ => error.sqlite_error_code(),
    }
}

fn is_busy(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed
    )
}

/// The error of an error of SQLite, without its source.
fn describe(error: &rusqlite::Error) -> Error {
    let message = match code(error) {
        Some(code) if is_busy(code) => {
            let message = "another process keeps the file locked; find one that is stopped, or that \
                           uses the file with another program";
            return Error::new(ErrorKind::Unreachable, message)
                .with_retry(Retry::Refused { after: None });
        }
        Some(ErrorCode::NotADatabase) => {
            let message =
                "the file is not a SQLite database; it was left as it is, choose another path";
            return invalid(message);
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            "the file is read-only; make it and its directory writable for this user, or choose \
             another path"
        }
        Some(ErrorCode::CannotOpen) => {
            "the file cannot be opened; make it and its directory readable and writable for this \
             user, or choose another path"
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            "the file is damaged; stop the programs that use it and delete it, then no lock is held"
        }
        Some(ErrorCode::DiskFull) => "the disk is full; make room on it",
        Some(ErrorCode::SystemIoFailure) => {
            "the file could not be read or written; check the disk and the system's log"
        }
        _ => return Error::new(ErrorKind::Store, format!("SQLite failed: {error}")),
    };
    Error::new(ErrorKind::Store, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_without_room_for_shared_memory_may_exist() {
        let no_shared_memory = failure(ffi::SQLITE_IOERR_SHMSIZE);
        assert!(no_shared_memory.is_full() && !no_shared_memory.undoes_commit());
        let full = failure(ffi::SQLITE_FULL);
        assert!(full.is_full() && full.undoes_commit());
    }
}
