//! The notify_sockets of a store's own clients, and the way to those of others.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{ClientId, Instant};

use super::directory::SocketDirectory;
use super::listeners::Listeners;
use super::outbox::Outbox;
use super::send::Send;
use super::socket::NotifySocket;
use crate::clock::{BootClock, Clock as _};

/// When notify_sockets could not be hung, it is tried again after this time: room on a disk may come back.
const RETRY: Duration = Duration::from_secs(10);

/// What the thread of a store needs to tell clients.
#[derive(Debug)]
pub(in crate::store::sqlite) struct Notifier {
    pub(super) listeners: Arc<Listeners>,
    directory: SocketDirectory,
    retry_at: Cell<Instant>,
}

impl Notifier {
    /// For the clients of a store on a file.
    pub(in crate::store::sqlite) fn new(file: &Path, listeners: Arc<Listeners>) -> Self {
        Self {
            listeners,
            directory: SocketDirectory::beside(file),
            retry_at: Cell::default(),
        }
    }

    /// Starts to collect what a transaction has to tell. `file`: where it is.
    pub(in crate::store::sqlite) fn outbox(&mut self, file: &Path) -> Outbox<'_> {
        if !self.directory.is_beside(file) {
            self.directory = SocketDirectory::beside(file);
            self.listeners.take_bells();
            self.hang();
        }
        let came = self.listeners.take_news();
        if came || (self.listeners.is_deaf() && self.retry_at.get() <= BootClock.now()) {
            self.hang();
        }
        Outbox::new(self)
    }

    /// Makes sure that the notify_sockets hang which others will look for. Somebody may have deleted them.
    pub(super) fn hang(&self) {
        let (mut hung, mut failed) = (false, None);
        for (client, entry) in self.listeners.all() {
            if entry
                .notify_socket
                .is_some_and(|notify_socket| notify_socket.is_heard())
            {
                continue;
            }
            match NotifySocket::hang(&self.directory, client, entry.listener.clone()) {
                Ok(notify_socket) => self.listeners.hang(client, &entry.listener, notify_socket),
                Err(error) => failed = Some(error),
            }
            hung = true;
        }
        if hung {
            self.directory.tidy();
        }
        let was_deaf = self.listeners.set_deaf(failed.is_some());
        if let Some(error) = failed {
            self.retry_at.set(BootClock.now().after(RETRY));
            if !was_deaf {
                tracing::warn!(
                    %error,
                    "no socket can be made beside the file of the locks; whoever waits asks again \
                     after a pause"
                );
            }
        }
    }

    /// The way to a client of another store that listens.
    pub(super) fn call(&self, client: ClientId) -> Option<Send> {
        Send::to(&self.directory, client)
    }
}
