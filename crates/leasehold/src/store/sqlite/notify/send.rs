//! Ringing the notify_sockets of clients elsewhere.

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixDatagram;

use leasehold_core::ClientId;

use super::directory::{OpenFolder, SocketDirectory};

/// A way to a notify_socket that somebody hears.
///
/// Each has a socket of its own: what one client has not taken yet counts against the socket that
/// sent it, and must not keep others from being told.
#[derive(Debug)]
pub(super) struct Send {
    client: ClientId,
    socket: UnixDatagram,
}

impl Send {
    /// The way to the notify_socket of a client. `None`: nobody hears it, and then it is removed, or it cannot
    /// be reached.
    pub(super) fn to(directory: &SocketDirectory, client: ClientId) -> Option<Self> {
        let connected = directory.open().and_then(|directory| {
            connect(&directory, client).inspect_err(|error| {
                if error.kind() == ErrorKind::ConnectionRefused {
                    directory.remove(client);
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
    pub(super) fn ring(&self, messages: &[Vec<u8>]) {
        let mut sent = messages.iter().map(|message| self.socket.send(message));
        if let Err(error) = sent.try_for_each(|bytes| bytes.map(drop)) {
            tracing::debug!(client = %self.client, %error, "a client was not told");
        }
    }
}

/// Whether it is certain that nobody hears the notify_socket of a client.
pub(super) fn is_refused(directory: &OpenFolder, client: ClientId) -> bool {
    connect(directory, client).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

fn connect(directory: &OpenFolder, client: ClientId) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    directory.connect(&socket, client)?;
    Ok(socket)
}
