//! Detects whether another process has the file open, with a kernel lock.
//!
//! Every process that has the file open keeps a shared `flock` on it. The kernel drops that lock when
//! the process ends, in any way. `flock` and the POSIX locks of SQLite are independent. A process that gets
//! the lock exclusively is the only one with the file open. A process that does not get it runs under the
//! same kernel as another one that has the file open, whatever the boot ids of their containers are.
//!
//! The descriptors stay open, without a lock, when the last store of this process is dropped: to
//! close one would drop all POSIX locks that SQLite has on the same file in this process. The stores are
//! known, but the program may have a connection of its own to the file, whose locks SQLite would still assume
//! for the next store. A process keeps one descriptor for each file that it ever opened and that is not
//! deleted, up to its limit of open files. A fork opens its own: an inherited descriptor shares the lock of
//! the parent, and either process would unlock it for both.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Mutex;

use rusqlite::ffi;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::error::{Fault, failure, of_system};
use super::path;
use crate::error::invalid;
use crate::fork::Process;
use crate::store::lock::lock;

/// The files that this process or the one that it was forked from has had open.
static FILES: Mutex<Vec<LockedFile>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct LockedFile {
    identity: Identity,
    file: File,
    process: Process,
    /// The number of [`LivenessLock`]s of this process that share the lock.
    shares: usize,
}

type Identity = (u64, u64);

impl LockedFile {
    /// Whether it is the file with this identity, and not inherited by a fork.
    fn is_own(&self, identity: Identity) -> bool {
        self.identity == identity && self.process.is_current()
    }
}

/// A share of the lock on an open file. Dropping it gives it up.
#[derive(Debug)]
pub(super) struct LivenessLock {
    identity: Identity,
    shared: bool,
}

impl LivenessLock {
    /// Prepares the lock of the file at a path. Nothing is locked yet.
    pub(super) fn of(path: &Path) -> Result<Self, Fault> {
        let mut files = lock(&FILES);
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
    /// open it until [`share`](Self::share) is called or this is dropped. Must be called inside a write
    /// transaction, so that two processes that are opening the file do not mistake each other for one that has
    /// it open.
    pub(super) fn try_alone(&mut self) -> Result<bool, Fault> {
        let mut files = lock(&FILES);
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

    /// Takes a share of the lock.
    pub(super) fn share(&mut self) -> Result<(), Fault> {
        let mut files = lock(&FILES);
        let file = find(&mut files, self.identity)?;
        flock(&file.file, FlockOperation::NonBlockingLockShared).map_err(|error| match error {
            Errno::WOULDBLOCK => failure(ffi::SQLITE_BUSY),
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
        let mut files = lock(&FILES);
        let Ok(file) = find(&mut files, self.identity) else {
            return;
        };
        file.shares -= usize::from(self.shared);
        if file.shares == 0 {
            let _ = flock(&file.file, FlockOperation::Unlock);
        }
    }
}

/// A file that is not found was deleted before it was locked: a retry opens its replacement.
fn find(files: &mut [LockedFile], identity: Identity) -> Result<&mut LockedFile, Fault> {
    let file = files.iter_mut().find(|file| file.is_own(identity));
    file.ok_or_else(|| failure(ffi::SQLITE_BUSY))
}

fn is_deleted(file: &File) -> bool {
    file.metadata().is_ok_and(|meta| meta.nlink() == 0)
}

fn unlockable(error: io::Error) -> Fault {
    let message =
        "its file system cannot lock files between processes; choose a path on a local disk";
    of_system(error, |_| invalid(message)).into()
}
