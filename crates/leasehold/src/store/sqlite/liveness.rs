//! Whether another process has the file open, found out from a kernel lock.
//!
//! Every process that has the file open keeps a shared `flock` on it. The kernel drops that lock when
//! the process ends, however it ends. `flock` and the POSIX locks of SQLite do not see each other.
//! A process that gets the lock exclusively is the only one with the file open. A process that
//! does not get it runs under the same kernel as another one that has the file open, whatever the
//! boot ids of their containers are.
//!
//! The descriptors stay open, without a lock, when the last store of this process is dropped: to
//! close one would drop all POSIX locks that SQLite has on the same file in this process. Those of the
//! stores are known, but the program may have a connection of its own to the file, and SQLite would
//! believe in its locks for the next store as well. A process keeps one for each file that it ever
//! opened and that is not deleted, up to its limit of open files. A fork opens its own: what it
//! inherited is the same lock as its parent's, which either would unlock for both.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{ErrorCode, ffi};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::error::{Fault, failure, of_system};
use super::path;
use crate::process::Process;
use crate::{Error, ErrorKind};

/// The files that this process has had open, and the process of which it is a fork.
static FILES: Mutex<Vec<LockedFile>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct LockedFile {
    identity: Identity,
    file: File,
    process: Process,
    /// How many [`LivenessLock`]s of this process share the lock.
    shares: usize,
}

type Identity = (u64, u64);

impl LockedFile {
    /// Whether it is the file with that identity, and was not inherited from another process.
    fn is_own(&self, identity: Identity) -> bool {
        self.identity == identity && self.process.is_current()
    }
}

/// This process among those that have a file open. Dropping it gives up its share.
#[derive(Debug)]
pub(super) struct LivenessLock {
    identity: Identity,
    shared: bool,
}

impl LivenessLock {
    /// Prepares the lock of the file at a path. Nothing is locked yet.
    pub(super) fn of(path: &Path) -> Result<Self, Fault> {
        let mut files = files();
        files.retain(|known| known.shares > 0 || !is_deleted(&known.file));
        let known = path::identity(path).filter(|id| files.iter().any(|f| f.is_own(*id)));
        let identity = match known {
            Some(identity) => identity,
            None => {
                let file = File::open(path).map_err(unlockable)?;
                let meta = file.metadata().map_err(unlockable)?;
                let identity = (meta.dev(), meta.ino());
                files.push(LockedFile {
                    identity,
                    file,
                    process: Process::current(),
                    shares: 0,
                });
                identity
            }
        };
        Ok(Self {
            identity,
            shared: false,
        })
    }

    /// Whether no other store has the file open, in this process or another one. If so, none can
    /// open it until [`share`](Self::share) is called or this is dropped. To be called inside a
    /// transaction that writes, so that two processes that are opening the file do not take each
    /// other for one that has it open.
    pub(super) fn try_alone(&mut self) -> Result<bool, Fault> {
        let mut files = files();
        let file = find(&mut files, self.identity)?;
        if file.shares > usize::from(self.shared) {
            return Ok(false);
        }
        match flock(&file.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(unlockable(error.into())),
        }
    }

    /// Joins those that have the file open.
    pub(super) fn share(&mut self) -> Result<(), Fault> {
        let mut files = files();
        let file = find(&mut files, self.identity)?;
        flock(&file.file, FlockOperation::NonBlockingLockShared).map_err(|error| match error {
            Errno::WOULDBLOCK => failure(ErrorCode::DatabaseBusy, ffi::SQLITE_BUSY),
            error => unlockable(error.into()),
        })?;
        if !self.shared {
            self.shared = true;
            file.shares += 1;
        }
        Ok(())
    }
}

impl Drop for LivenessLock {
    fn drop(&mut self) {
        let mut files = files();
        let Ok(file) = find(&mut files, self.identity) else {
            return;
        };
        file.shares -= usize::from(self.shared);
        if file.shares == 0 {
            let _ = flock(&file.file, FlockOperation::Unlock);
        }
    }
}

fn files() -> MutexGuard<'static, Vec<LockedFile>> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// It was deleted before it was locked, if it is not found: another attempt opens its successor.
fn find(files: &mut [LockedFile], identity: Identity) -> Result<&mut LockedFile, Fault> {
    let file = files.iter_mut().find(|file| file.is_own(identity));
    file.ok_or_else(|| failure(ErrorCode::DatabaseBusy, ffi::SQLITE_BUSY))
}

fn is_deleted(file: &File) -> bool {
    file.metadata().is_ok_and(|meta| meta.nlink() == 0)
}

fn unlockable(error: io::Error) -> Fault {
    let message =
        "its file system cannot lock files between processes; choose a path on a local disk";
    of_system(error, |_| Error::new(ErrorKind::InvalidConfig, message)).into()
}
