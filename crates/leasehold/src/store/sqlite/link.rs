//! The connection to the file that is at the path.

use std::path::PathBuf;
use std::sync::Arc;

use leasehold_core::Instant;

use super::boot::Machine;
use super::busy;
use super::error::Fault;
use super::file::File;
use super::liveness::LivenessLock;
use crate::store::hub::Hub;

/// A path, and the file there, reopened when it is replaced.
#[derive(Debug)]
pub(super) struct Link {
    path: PathBuf,
    machine: Machine,
    hub: Arc<Hub>,
    /// `None` after a fault that reopening may fix.
    file: Option<File>,
    /// Kept until the file is open again: this process still holds locks in it.
    liveness: Option<LivenessLock>,
}

impl Link {
    pub(super) fn new(path: PathBuf, machine: Machine, hub: Arc<Hub>) -> Self {
        Self {
            path,
            machine,
            hub,
            file: None,
            liveness: None,
        }
    }

    /// The open file, which is created if it is missing, and reopened if it was deleted or replaced: locks in the old one
    /// exclude no other process. The clients are notified, so that they check their locks. Waits until `until` for other
    /// processes that have it locked.
    pub(super) fn get(&mut self, until: Instant) -> Result<&File, Fault> {
        if self
            .file
            .as_ref()
            .is_some_and(|file| !file.is_at(&self.path))
        {
            tracing::warn!(
                path = %self.path.display(),
                "the file of the locks was deleted or replaced; the locks in the old one are lost"
            );
            self.file = None;
            self.hub.interrupted();
        }
        Ok(match self.file {
            Some(ref file) => file,
            None => {
                let opened = busy::retry(until, || File::open(&self.path, &self.machine))?;
                self.liveness = None;
                &*self.file.insert(opened)
            }
        })
    }

    /// Recovers from a fault for the next request, where that is possible.
    pub(super) fn recover(&mut self, fault: &Fault) {
        if fault.wants_reopening()
            && let Some(file) = self.file.take()
        {
            self.liveness = Some(file.liveness);
        }
        if let Some(file) = self.file.as_ref().filter(|_| fault.is_full()) {
            file.write_log_back();
        }
    }
}
