//! Ringing the bells of clients elsewhere.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixDatagram;

use leasehold_core::ClientId;

use super::folder::Folder;

/// Rings bells. It has one socket for all of them.
#[derive(Debug)]
pub(super) struct Caller {
    socket: Option<UnixDatagram>,
}

impl Caller {
    pub(super) fn new() -> Self {
        let socket = unbound();
        if let Err(error) = &socket {
            tracing::warn!(%error, "waiters of other processes cannot be told");
        }
        Self {
            socket: socket.ok(),
        }
    }

    /// Whether somebody hears the bell of a client. One that nobody hears is removed.
    pub(super) fn reaches(&self, folder: &Folder, client: ClientId) -> bool {
        let Some(socket) = &self.socket else {
            return false;
        };
        match connect(socket, folder, client) {
            Ok(()) => true,
            Err(error) => {
                if error.kind() == ErrorKind::ConnectionRefused {
                    let _ = fs::remove_file(folder.place(client));
                }
                tracing::debug!(%client, %error, "a client cannot be told");
                false
            }
        }
    }

    /// Rings. Whoever does not hear it, because it is stopped or was killed in this moment, is not
    /// waited for.
    pub(super) fn call(&self, folder: &Folder, client: ClientId, letters: &[Vec<u8>]) {
        let Some(socket) = &self.socket else {
            return;
        };
        let rung = connect(socket, folder, client).and_then(|()| {
            let mut sent = letters.iter().map(|letter| socket.send(letter));
            sent.try_for_each(|bytes| bytes.map(drop))
        });
        if let Err(error) = rung {
            tracing::debug!(%client, %error, "a client was not told");
        }
    }
}

/// Whether it is certain that nobody hears the bell of a client.
pub(super) fn is_refused(folder: &Folder, client: ClientId) -> bool {
    let asked = unbound().and_then(|socket| connect(&socket, folder, client));
    asked.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

fn unbound() -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn connect(socket: &UnixDatagram, folder: &Folder, client: ClientId) -> io::Result<()> {
    socket.connect(folder.address(client)?)
}
