//! Binds the notify sockets of the clients of a store.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{ClientId, Instant};

use super::directory::SocketDirectory;
use super::socket::NotifySocket;
use super::sockets::Sockets;
use crate::clock::{BootClock, Clock as _};
use crate::store::api::Key;

/// The retry interval after a notify socket could not be bound: the disk may have space again.
const RETRY: Duration = Duration::from_secs(10);

/// How often the observers of a store read again without an event, so that registrations are renewed: before
/// their end, and also if the machine was suspended for longer.
const REFRESH: Duration = Duration::from_secs(20);

/// Binds sockets, from the thread of a store.
#[derive(Debug)]
pub(in crate::store::sqlite) struct Notifier {
    pub(in crate::store::sqlite) sockets: Arc<Sockets>,
    pub(super) directory: SocketDirectory,
    retry_at: Instant,
    /// Those that could not be notified: most of them are processes that have ended.
    pub(super) unreachable: Vec<Registration>,
}

/// The row of a client that observes a name.
#[derive(Debug)]
pub(in crate::store::sqlite) struct Registration {
    pub(in crate::store::sqlite) client: ClientId,
    pub(in crate::store::sqlite) key: Key,
    pub(in crate::store::sqlite) until: i64,
}

impl Notifier {
    /// For the clients of a store on a file.
    pub(in crate::store::sqlite) fn new(file: &Path, sockets: Arc<Sockets>) -> Self {
        Self {
            sockets,
            directory: SocketDirectory::beside(file),
            retry_at: Instant::default(),
            unreachable: Vec::new(),
        }
    }

    /// Binds the sockets that are due: the file is at another path, a client was added, or a retry is due.
    pub(in crate::store::sqlite) fn update(&mut self, file: &Path) {
        if !self.directory.is_beside(file) {
            self.directory = SocketDirectory::beside(file);
            self.sockets.close();
            self.bind_sockets();
        }
        let added = self.sockets.take_added();
        if added || (!self.sockets.is_reachable() && self.retry_at <= BootClock.now()) {
            self.bind_sockets();
        }
    }

    /// Binds the missing sockets of clients. An existing one may have been deleted.
    pub(super) fn bind_sockets(&mut self) {
        let (mut bound, mut failed) = (false, None);
        for (client, old) in self.sockets.all() {
            if old.is_some_and(|socket| socket.is_open()) {
                continue;
            }
            let hub = self.sockets.hub.clone();
            let refresh = (client == self.sockets.watcher).then_some(REFRESH);
            match NotifySocket::bind(&self.directory, client, hub, refresh) {
                Ok(socket) => self.sockets.set(client, socket),
                Err(error) => failed = Some(error),
            }
            bound = true;
        }
        if bound {
            self.directory.remove_stale();
        }
        let was_unreachable = self.sockets.set_unreachable(failed.is_some());
        if let Some(error) = failed {
            self.retry_at = BootClock.now().after(RETRY);
            if !was_unreachable {
                tracing::warn!(
                    %error,
                    "no socket can be made beside the file of the locks; waiters poll instead"
                );
            }
        }
    }
}
