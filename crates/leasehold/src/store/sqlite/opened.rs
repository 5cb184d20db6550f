//! The files that this process has open in SQLite, so that a fork does not open them.
//!
//! SQLite keeps the locks of its process in memory. A fork has a copy of that memory, but not the locks: it
//! would not take a lock that its parent had, and other processes would truncate the shared memory and delete
//! the log that it uses.

use std::path::Path;
use std::sync::Mutex;

use super::path;
use crate::fork::Process;
use crate::store::lock::lock;
use crate::{Error, ErrorKind, Result};

/// The open files of this process and of the one that it was forked from.
static FILES: Mutex<Vec<OpenFile>> = Mutex::new(Vec::new());

#[derive(Clone, Copy, Debug)]
struct OpenFile {
    /// Unique as long as this file is open here, or its descriptor was inherited.
    identity: (u64, u64),
    process: Process,
}

/// The registration of a connection to a file with this identity. Must be dropped after the connection.
#[derive(Debug)]
pub(super) struct OpenConnection(pub(super) Option<(u64, u64)>);

impl OpenConnection {
    /// Registers a connection that is about to be opened.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] in a fork of a process that had it open.
    pub(super) fn to(path: &Path) -> Result<Self> {
        let identity = path::identity(path);
        if let Some(identity) = identity {
            let mut files = lock(&FILES);
            let mut known = files.iter().filter(|file| file.identity == identity);
            if known.any(|file| !file.process.is_current()) {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "this process is a fork of one that had the file open, and SQLite cannot lock \
                     it here; fork before the file is opened, or execute a program after it",
                ));
            }
            let process = Process::current();
            files.push(OpenFile { identity, process });
        }
        Ok(Self(identity))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut files = lock(&FILES);
        let own = |file: &OpenFile| Some(file.identity) == self.0 && file.process.is_current();
        if let Some(position) = files.iter().position(own) {
            files.swap_remove(position);
        }
    }
}
