//! One connection to a node.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, WriteHalf};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::watchdog::Address;
use crate::watchdog::frame::{self, Decoder};
use crate::watchdog::wire::{ToClient, ToNode};

/// How many bytes are read at once.
const READ: usize = 4 * 1024;

/// How long the machine of a node may leave what was sent unacknowledged, in milliseconds. The node gives the client up
/// after as long.
#[cfg(target_os = "linux")]
const ACK_TIMEOUT_MS: u32 = 11_000;

/// A send neither waits nor raises a signal. Apple has an option of the socket instead, which Tokio sets.
#[cfg(not(target_vendor = "apple"))]
const FLAGS: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);
#[cfg(target_vendor = "apple")]
const FLAGS: SendFlags = SendFlags::DONTWAIT;

/// The half of a connection that receives messages.
pub(super) struct Reader {
    stream: Box<dyn AsyncRead + Send + Unpin>,
    decoder: Decoder,
}

/// The half of a connection that sends messages.
pub(super) enum Writer {
    Unix(OwnedWriteHalf),
    Tls(WriteHalf<TlsStream<TcpStream>>),
}

/// Connects to a node.
pub(super) async fn connect(
    address: &Address,
    ca_file: Option<&Path>,
) -> io::Result<(Reader, Writer)> {
    let (stream, writer): (Box<dyn AsyncRead + Send + Unpin>, _) = match address {
        Address::Unix(path) => {
            let (read, write) = UnixStream::connect(path).await?.into_split();
            (Box::new(read), Writer::Unix(write))
        }
        Address::Tcp(host, port) => {
            let stream = connect_tcp(host, *port).await?;
            let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
            let connector = TlsConnector::from(Arc::new(tls(ca_file)?));
            let (read, write) = tokio::io::split(connector.connect(name, stream).await?);
            (Box::new(read), Writer::Tls(write))
        }
    };
    let decoder = Decoder::default();
    Ok((Reader { stream, decoder }, writer))
}

/// Connects so that the end of a connection is noticed even if no packet of the node arrives: the client would count as
/// watched for a quarter of an hour.
async fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    #[cfg(target_os = "linux")]
    rustix::net::sockopt::set_tcp_user_timeout(&stream, ACK_TIMEOUT_MS)?;
    Ok(stream)
}

fn tls(ca_file: Option<&Path>) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(file) => {
            let read = |error| io::Error::other(format!("{}: {error}", file.display()));
            for certificate in CertificateDer::pem_file_iter(file).map_err(read)? {
                let certificate = certificate.map_err(read)?;
                roots.add(certificate).map_err(io::Error::other)?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions();
    let config = config.map_err(io::Error::other)?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

impl Reader {
    /// Receives the next message. Cancelled, it loses nothing.
    pub(super) async fn next(&mut self) -> io::Result<ToClient> {
        let mut buffer = [0; READ];
        loop {
            if let Some(message) = self.decoder.message().map_err(io::Error::other)? {
                return Ok(message);
            }
            match self.stream.read(&mut buffer).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.decoder.push(buffer.get(..read).unwrap_or_default()),
            }
        }
    }
}

impl Writer {
    pub(super) async fn send(&mut self, message: &ToNode) -> io::Result<()> {
        let frame = frame::encode(message).map_err(io::Error::other)?;
        match self {
            Self::Unix(stream) => stream.write_all(&frame).await,
            Self::Tls(stream) => write(stream, &frame).await,
        }
    }

    /// Sends a message without waiting, if the node is on this machine and takes it.
    pub(super) fn try_send(&self, message: &ToNode) {
        if let (Self::Unix(stream), Ok(frame)) = (self, frame::encode(message)) {
            let _ = rustix::net::send(stream.as_ref().as_fd(), &frame, FLAGS);
        }
    }

    /// Sends the descriptor of a process. A node on another machine cannot watch it, and receives nothing.
    /// Returns whether the node will reply.
    pub(super) async fn send_process(&mut self, process: BorrowedFd<'_>) -> io::Result<bool> {
        let Self::Unix(stream) = self else {
            return Ok(false);
        };
        let frame = frame::encode(&ToNode::Process).map_err(io::Error::other)?;
        let socket = stream.as_ref();
        let sent = socket
            .async_io(Interest::WRITABLE, || send(socket.as_fd(), &frame, process))
            .await?;
        // The rest of the frame goes without the descriptor.
        stream
            .write_all(frame.get(sent..).unwrap_or_default())
            .await?;
        Ok(true)
    }
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), frame: &[u8]) -> io::Result<()> {
    stream.write_all(frame).await?;
    stream.flush().await
}

fn send(socket: BorrowedFd<'_>, bytes: &[u8], process: BorrowedFd<'_>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let processes = [process];
    ancillary.push(SendAncillaryMessage::ScmRights(&processes));
    let sent = sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, FLAGS)?;
    Ok(sent)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unreachable_node_is_given_up_as_soon_as_it_gives_up_the_client() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = connect_tcp("127.0.0.1", port).await.unwrap();
        let timeout = rustix::net::sockopt::tcp_user_timeout(&stream);
        assert_eq!(timeout, Ok(ACK_TIMEOUT_MS));
    }
}
