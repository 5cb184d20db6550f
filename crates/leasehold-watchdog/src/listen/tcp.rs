//! The TLS listener for clients on other machines.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::pause;
use crate::Error;
use crate::connection::{Connection, Link};
use crate::session::Peer;
use crate::settings::{Listen, TlsFiles};
use crate::shared::{ConnectionPermit, Shared};

const BACKLOG: i32 = 4_096;

/// The idle time of a connection before the first keepalive probe.
const IDLE: Duration = Duration::from_secs(5);

/// The interval between two keepalive probes.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// The number of unanswered probes that end a connection. The kernel of a paused process answers them.
const ASK_TIMES: u32 = 3;

/// How long sent data may stay unacknowledged.
const ARRIVES_WITHIN: Duration = Duration::from_secs(11);

/// The time limit of the TLS handshake.
const TLS_WITHIN: Duration = Duration::from_secs(10);

/// The certificate of a node.
#[derive(Clone)]
pub(crate) struct Tls(TlsAcceptor);

impl Tls {
    /// Reads the files of a certificate.
    pub(crate) fn read(files: &TlsFiles) -> Result<Self, Error> {
        let failed = |file: &std::path::Path, what: &str| {
            Error::new(format!("cannot use {} as {what}", file.display()))
        };
        let certs = CertificateDer::pem_file_iter(&files.cert)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| failed(&files.cert, "a certificate").with_source(error))?;
        if certs.is_empty() {
            return Err(failed(&files.cert, "a certificate: there is none in it"));
        }
        let key = PrivateKeyDer::from_pem_file(&files.key)
            .map_err(|error| failed(&files.key, "a private key").with_source(error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(certs, key))
            .map_err(|error| {
                let what = "the private key of the certificate";
                failed(&files.key, what).with_source(error)
            })?;
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }
}

/// A TCP socket whose connections use TLS.
pub(crate) struct TcpListener {
    socket: tokio::net::TcpListener,
    tls: Tls,
    address: Listen,
}

impl TcpListener {
    /// Listens at the first address of the host that can be bound.
    pub(crate) async fn bind(host: &str, port: u16, tls: &Tls) -> Result<Self, Error> {
        let listen = Listen::Tcp {
            host: host.to_owned(),
            port,
        };
        let failed = |what: &str| Error::new(format!("cannot listen at {listen}: {what}"));
        let addresses = tokio::net::lookup_host((host, port)).await;
        let addresses =
            addresses.map_err(|error| failed("its name has no address").with_source(error))?;
        let mut error = failed("its name has no address");
        for address in addresses {
            match open(address) {
                Ok(socket) => {
                    let bound = socket.local_addr().map_or(port, |bound| bound.port());
                    let address = Listen::Tcp {
                        host: host.to_owned(),
                        port: bound,
                    };
                    let tls = tls.clone();
                    return Ok(Self {
                        socket,
                        tls,
                        address,
                    });
                }
                Err(cause) => error = failed(reason(&cause)).with_source(cause),
            }
        }
        Err(error)
    }

    /// Listens at a socket that the service manager has opened.
    pub(super) fn given(socket: Socket, tls: &Tls) -> Result<Self, Error> {
        let failed = |error: io::Error| {
            Error::new("cannot listen at a given socket: it cannot be used").with_source(error)
        };
        let socket = tokio::net::TcpListener::from_std(socket.into()).map_err(failed)?;
        let bound = socket.local_addr().map_err(failed)?;
        Ok(Self {
            socket,
            tls: tls.clone(),
            address: Listen::Tcp {
                host: bound.ip().to_string(),
                port: bound.port(),
            },
        })
    }

    pub(crate) fn address(&self) -> Listen {
        self.address.clone()
    }

    pub(crate) async fn run(self, shared: Arc<Shared>) {
        loop {
            match self.socket.accept().await {
                Ok((stream, from)) => {
                    let (tls, seat) = (self.tls.clone(), shared.seat());
                    let served = serve(stream, from, tls, seat, Arc::clone(&shared));
                    shared.tasks.spawn(served);
                }
                Err(error) => pause(&self.address, &error).await,
            }
        }
    }
}

async fn serve(
    stream: TcpStream,
    from: SocketAddr,
    tls: Tls,
    seat: Option<ConnectionPermit>,
    shared: Arc<Shared>,
) {
    let Some(seat) = seat else {
        tracing::warn!(%from, "too many connections, refused a connection");
        return;
    };
    if let Err(error) = watch(&stream) {
        tracing::warn!(%from, %error, "cannot set the keepalive of a connection");
        return;
    }
    let accepted = tokio::select! {
        accepted = tokio::time::timeout(TLS_WITHIN, tls.0.accept(stream)) => accepted,
        // Another connection needs the permit.
        () = seat.ended() => return,
    };
    match accepted {
        Ok(Ok(stream)) => {
            let link = TlsLink(Box::new(stream));
            let peer = Peer::Remote(from);
            Connection::new(&shared, peer, link).run(shared, seat).await;
        }
        Ok(Err(error)) => tracing::warn!(%from, %error, "a TLS handshake failed"),
        Err(_) => tracing::warn!(%from, "a TLS handshake timed out"),
    }
}

/// Has the kernel notice a peer whose machine is unreachable.
fn watch(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(IDLE)
        .with_interval(ASK_EVERY)
        .with_retries(ASK_TIMES);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(ARRIVES_WITHIN))?;
    stream.set_nodelay(true)
}

fn open(address: SocketAddr) -> io::Result<tokio::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    tokio::net::TcpListener::from_std(socket.into())
}

fn reason(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "the port is taken",
        io::ErrorKind::AddrNotAvailable => "this machine does not have the address",
        io::ErrorKind::PermissionDenied => "this user may not listen at the port",
        _ => "the socket cannot be opened",
    }
}

/// A connection over TLS.
struct TlsLink(Box<TlsStream<TcpStream>>);

impl Link for TlsLink {
    fn take_descriptor(&mut self) -> Option<OwnedFd> {
        None
    }
}

impl AsyncRead for TlsLink {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for TlsLink {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
