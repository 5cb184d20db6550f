//! Where there are no such sockets, nobody is told: whoever waits asks again after a pause.

use std::io;
use std::path::Path;
use std::sync::Weak;

use leasehold_core::ClientId;

use crate::store::Listener;

/// No folder.
#[derive(Debug)]
pub(super) struct Folder;

impl Folder {
    pub(super) fn beside(_file: &Path) -> Self {
        Self
    }

    pub(super) fn is_beside(&self, _file: &Path) -> bool {
        true
    }

    pub(super) fn tidy(&self) {}
}

/// No bell.
#[derive(Debug)]
pub(super) struct Bell;

impl Bell {
    pub(super) fn hang(
        _folder: &Folder,
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
pub(super) struct Call;

impl Call {
    pub(super) fn to(_folder: &Folder, _client: ClientId) -> Option<Self> {
        None
    }

    pub(super) fn ring(&self, _letters: &[Vec<u8>]) {}
}
