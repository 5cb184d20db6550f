//! Where there are no such sockets, nobody is told: whoever waits asks again after a pause.

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

    pub(super) fn tidy(&self) {}
}

/// No notify_socket.
#[derive(Debug)]
pub(super) struct NotifySocket;

impl NotifySocket {
    pub(super) fn hang(
        _folder: &SocketDirectory,
        _client: ClientId,
        _listener: Weak<dyn Listener>,
    ) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn is_heard(&self) -> bool {
        false
    }
}

/// No calls.
#[derive(Debug)]
pub(super) struct Send;

impl Send {
    pub(super) fn to(_folder: &SocketDirectory, _client: ClientId) -> Option<Self> {
        None
    }

    pub(super) fn ring(&self, _letters: &[Vec<u8>]) {}
}
