//! Status queries to the node on this machine.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use leasehold_core::{Instant, LeaseId};

use super::frame::{self, Decoder};
use super::wire::{ClientStatus, Hello, Role, ToClient, ToNode};

/// How long people wait for a reply.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A connection that queries a node on this machine. Its calls block, for a timeout at most without data from
/// the node.
#[derive(Debug)]
pub struct Observer {
    stream: UnixStream,
    decoder: Decoder,
    node: String,
}

impl Observer {
    /// Connects to the node at a socket, with a timeout of two seconds.
    ///
    /// # Errors
    ///
    /// As [`Observer::with_timeout`].
    pub fn connect(socket: &Path) -> io::Result<Self> {
        Self::with_timeout(socket, TIMEOUT)
    }

    /// Connects to the node at a socket. The timeout is that of each read and write: a stopped node accepts
    /// connections, and never replies.
    ///
    /// # Errors
    ///
    /// Those of the socket; [`io::ErrorKind::PermissionDenied`] if the node refuses the connection, and
    /// [`io::ErrorKind::InvalidData`] for a reply of the wrong kind.
    pub fn with_timeout(socket: &Path, timeout: Duration) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        let mut observer = Self {
            stream,
            decoder: Decoder::default(),
            node: String::new(),
        };
        let (role, token) = (Role::Observer, None);
        match observer.request(&ToNode::Hello(Hello { token, role }))? {
            ToClient::Welcome { node, .. } => Ok(Self { node, ..observer }),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The name of the node.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The end of a lease as the node last renewed it, on the boot clock of this machine. `None`: the node has not
    /// renewed it.
    ///
    /// # Errors
    ///
    /// Those of the socket; [`io::ErrorKind::PermissionDenied`] if the node refuses the request, and
    /// [`io::ErrorKind::InvalidData`] for a reply of the wrong kind.
    pub fn kept_until(&mut self, lease: LeaseId) -> io::Result<Option<Instant>> {
        let query = ToNode::LeaseQuery {
            client: lease.client.to_bytes(),
            number: lease.number,
        };
        match self.request(&query)? {
            ToClient::LeaseStatus(until) => Ok(until.map(Instant::from_nanos)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The clients that the node monitors.
    ///
    /// # Errors
    ///
    /// As [`Observer::kept_until`].
    pub fn status(&mut self) -> io::Result<Vec<ClientStatus>> {
        let mut all = Vec::new();
        let mut reply = self.request(&ToNode::Status)?;
        loop {
            let ToClient::Status { clients, more } = reply else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            all.extend(clients);
            if !more {
                return Ok(all);
            }
            reply = self.receive()?;
        }
    }

    fn request(&mut self, message: &ToNode) -> io::Result<ToClient> {
        let frame = frame::encode(message).map_err(io::Error::other)?;
        self.stream.write_all(&frame)?;
        self.receive()
    }

    fn receive(&mut self) -> io::Result<ToClient> {
        let mut buffer = [0; 4096];
        loop {
            match self.decoder.message().map_err(io::Error::other)? {
                Some(ToClient::Refused(refusal)) => {
                    return Err(io::Error::new(
                        io::ErrorKind::PermissionDenied,
                        refusal.to_string(),
                    ));
                }
                Some(message) => return Ok(message),
                None => {}
            }
            match self.stream.read(&mut buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.decoder.push(buffer.get(..read).unwrap_or_default()),
            }
        }
    }
}
