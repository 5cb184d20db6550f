//! Sends messages to the notify sockets of other clients.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;

use leasehold_core::ClientId;

use super::directory::SocketDirectory;

/// A connection to an open notify socket.
///
/// Each has a socket of its own: messages that one client has not read yet count against the sending socket,
/// and must not block those to others.
#[derive(Debug)]
pub(super) struct Sender {
    client: ClientId,
    socket: UnixDatagram,
}

impl Sender {
    /// Connects to the socket of a client. `None` if it cannot be reached; a socket that is closed is
    /// removed.
    pub(super) fn connect(directory: &SocketDirectory, client: ClientId) -> Option<Self> {
        let connected = directory.open().and_then(|directory| {
            directory.connect(client).inspect_err(|error| {
                if error.kind() == ErrorKind::ConnectionRefused {
                    directory.remove(client);
                }
            })
        });
        match connected {
            Ok(socket) => Some(Self { client, socket }),
            Err(error) => {
                tracing::debug!(%client, %error, "a client cannot be notified");
                None
            }
        }
    }

    /// Sends without waiting for a client that is stopped or was just killed.
    pub(super) fn send(&self, messages: &[Vec<u8>]) {
        let mut sent = messages.iter().map(|message| self.socket.send(message));
        if let Err(error) = sent.try_for_each(|bytes| bytes.map(drop)) {
            tracing::debug!(client = %self.client, %error, "a client was not notified");
        }
    }
}
