//! Ringing the bells of clients elsewhere.

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixDatagram;

use leasehold_core::ClientId;

use super::folder::{Folder, OpenFolder};

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
        let connected = folder.open().and_then(|folder| {
            connect(&folder, client).inspect_err(|error| {
                if error.kind() == ErrorKind::ConnectionRefused {
                    folder.remove(client);
                }
            })
        });
        match connected {
            Ok(socket) => Some(Self { client, socket }),
            Err(error) => {
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
pub(super) fn is_refused(folder: &OpenFolder, client: ClientId) -> bool {
    connect(folder, client).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

fn connect(folder: &OpenFolder, client: ClientId) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    folder.connect(&socket, client)?;
    Ok(socket)
}
