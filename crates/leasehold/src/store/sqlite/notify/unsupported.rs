//! For systems without unix sockets: no client is notified, so waiters poll.

use std::io;
use std::path::Path;
use std::sync::Weak;

use leasehold_core::ClientId;

use crate::store::api::Listener;

/// No directory.
#[derive(Debug)]
pub(super) struct SocketDirectory;

impl SocketDirectory {
    pub(super) fn beside(_file: &Path) -> Self {
        Self
    }

    pub(super) fn is_beside(&self, _file: &Path) -> bool {
        true
    }

    pub(super) fn remove_stale(&self) {}
}

/// No socket.
#[derive(Debug)]
pub(super) struct NotifySocket;

impl NotifySocket {
    pub(super) fn bind(
        _directory: &SocketDirectory,
        _client: ClientId,
        _listener: Weak<dyn Listener>,
    ) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn is_open(&self) -> bool {
        false
    }
}

/// No sender.
#[derive(Debug)]
pub(super) struct Sender;

impl Sender {
    pub(super) fn connect(_directory: &SocketDirectory, _client: ClientId) -> Option<Self> {
        None
    }

    pub(super) fn send(&self, _messages: &[Vec<u8>]) {}
}
