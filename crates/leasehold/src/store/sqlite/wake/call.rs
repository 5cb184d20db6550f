//! Ringing the bells of clients elsewhere.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixDatagram;

use leasehold_core::ClientId;

use super::folder::Folder;

/// A way to a bell that somebody hears.
///
/// Each has a socket of its own: what one client has not taken yet counts against the socket that
/// sent it, and must not keep others from being told.
#[derive(Debug)]
pub(super) struct Call {
    client: ClientId,
    socket: UnixDatagram,
}

impl Call {
    /// The way to the bell of a client. `None`: nobody hears it, and then it is removed, or it cannot
    /// be reached.
    pub(super) fn to(folder: &Folder, client: ClientId) -> Option<Self> {
        match connect(folder, client) {
            Ok(socket) => Some(Self { client, socket }),
            Err(error) => {
                if error.kind() == ErrorKind::ConnectionRefused {
                    let _ = fs::remove_file(folder.place(client));
                }
                tracing::debug!(%client, %error, "a client cannot be told");
                None
            }
        }
    }

    /// Rings. Whoever does not hear it, because it is stopped or was killed in this moment, is not
    /// waited for.
    pub(super) fn ring(&self, letters: &[Vec<u8>]) {
        let mut sent = letters.iter().map(|letter| self.socket.send(letter));
        if let Err(error) = sent.try_for_each(|bytes| bytes.map(drop)) {
            tracing::debug!(client = %self.client, %error, "a client was not told");
        }
    }
}

/// Whether it is certain that nobody hears the bell of a client.
pub(super) fn is_refused(folder: &Folder, client: ClientId) -> bool {
    connect(folder, client).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

fn connect(folder: &Folder, client: ClientId) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect(folder.address(client)?)?;
    Ok(socket)
}
