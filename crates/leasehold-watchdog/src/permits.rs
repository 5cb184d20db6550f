//! Permits for connections, and for the open files of connections and processes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Resource, getrlimit};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::limits::Limits;

/// By how many the connections may exceed their limit while displaced ones are still ending.
const DISPLACED_MAX: usize = 16;

/// The number of files of a connection: its socket, the pidfd of its peer, and a received descriptor that is not
/// handled yet.
const FILES_PER_CONNECTION: u32 = 3;

/// The files of as many connections as may exceed their limit.
const FILES_DISPLACED: usize = DISPLACED_MAX * FILES_PER_CONNECTION as usize;

/// The permits of a node.
#[derive(Debug)]
pub(crate) struct Permits {
    connections: Arc<Semaphore>,
    /// The maximum number of connections.
    pub(crate) connections_max: usize,
    files: Arc<Semaphore>,
    /// The maximum number of files that connections and watched processes may use.
    pub(crate) files_max: usize,
    /// Connections without a client, the oldest first. Each is notified when another one displaces it.
    without_client: Mutex<VecDeque<Arc<Notify>>>,
}

/// The permit of a connection.
pub(crate) struct ConnectionPermit {
    permits: Arc<Permits>,
    displaced: Arc<Notify>,
    files: OwnedSemaphorePermit,
    _connection: OwnedSemaphorePermit,
}

/// The permit of an open file.
pub(crate) type FilePermit = OwnedSemaphorePermit;

impl Permits {
    /// Permits for so many connections, and for as many files as this process may open.
    pub(crate) fn new(limits: &Limits) -> Arc<Self> {
        let semaphore =
            |permits: usize| Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        let connections_max = limits
            .connections()
            .min(Semaphore::MAX_PERMITS - DISPLACED_MAX);
        let files_max = files_max(getrlimit(Resource::Nofile).current)
            .min(Semaphore::MAX_PERMITS - FILES_DISPLACED);
        Arc::new(Self {
            connections: semaphore(connections_max + DISPLACED_MAX),
            connections_max,
            files: semaphore(files_max + FILES_DISPLACED),
            files_max,
            without_client: Mutex::default(),
        })
    }

    /// A permit for one more connection, if there is room. One too many displaces the oldest connection without a
    /// client: observers and silent peers keep no client out.
    pub(crate) fn connection(self: &Arc<Self>) -> Option<ConnectionPermit> {
        let connection = Arc::clone(&self.connections).try_acquire_owned().ok()?;
        let files = Arc::clone(&self.files).try_acquire_many_owned(FILES_PER_CONNECTION);
        let permit = ConnectionPermit {
            permits: Arc::clone(self),
            displaced: Arc::default(),
            files: files.ok()?,
            _connection: connection,
        };
        let has_room = self.has_room();
        if has_room {
            self.without_client()
                .push_back(Arc::clone(&permit.displaced));
        }
        has_room.then_some(permit)
    }

    /// A permit for the pidfd of a further process.
    pub(crate) fn file(&self) -> Option<FilePermit> {
        Arc::clone(&self.files).try_acquire_owned().ok()
    }

    /// Whether the last permit was within the limits, after displacing the oldest connection without a client if
    /// necessary.
    pub(crate) fn has_room(&self) -> bool {
        let is_within_limits = self.connections.available_permits() >= DISPLACED_MAX
            && self.files.available_permits() >= FILES_DISPLACED;
        is_within_limits || {
            let oldest = self.without_client().pop_front();
            oldest.is_some_and(|oldest| {
                oldest.notify_one();
                true
            })
        }
    }

    /// The number of connections.
    pub(crate) fn connections(&self) -> usize {
        self.connections_max + DISPLACED_MAX - self.connections.available_permits()
    }

    /// The number of files that connections and watched processes may use by now.
    pub(crate) fn files(&self) -> usize {
        self.files_max + FILES_DISPLACED - self.files.available_permits()
    }

    fn without_client(&self) -> MutexGuard<'_, VecDeque<Arc<Notify>>> {
        let connections = self.without_client.lock();
        connections.unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionPermit {
    /// The permit for the peer's pidfd, which a client keeps beyond its connection.
    pub(crate) fn process_file(&mut self) -> Option<FilePermit> {
        self.files.split(1)
    }

    /// Marks the connection as that of a client, which is not displaced.
    pub(crate) fn set_has_client(&self) {
        let mut connections = self.permits.without_client();
        connections.retain(|other| !Arc::ptr_eq(other, &self.displaced));
    }

    /// Waits until the connection has to end for another.
    pub(crate) async fn displaced(&self) {
        self.displaced.notified().await;
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.set_has_client();
    }
}

/// The maximum number of files of connections and watched processes. `open_max` is the limit of this process.
fn files_max(open_max: Option<u64>) -> usize {
    let files = open_max.map_or(u64::MAX, |max| max.saturating_sub(Limits::FILES_RESERVED));
    let files = files.max(FILES_PER_CONNECTION.into());
    usize::try_from(files).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_leave_files_for_the_stores() {
        assert_eq!(files_max(None), usize::MAX);
        assert_eq!(files_max(Some(1_024)), 896);
        // At least one peer can connect.
        assert_eq!(files_max(Some(64)), 3);
    }
}
