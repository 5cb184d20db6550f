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
use socket2::{SockRef, Socket, TcpKeepalive};
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{BACKLOG, bind_error};
use crate::Error;
use crate::connection::{Connection, Transport};
use crate::permits::ConnectionPermit;
use crate::session::Peer;
use crate::settings::{Listen, TlsFiles};
use crate::shared::Shared;

/// The idle time of a connection before the first keepalive probe.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);

/// The interval between two keepalive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);

/// The number of unanswered probes that end a connection. The kernel of a paused process answers them.
const KEEPALIVE_RETRIES: u32 = 3;

/// How long sent data may stay unacknowledged.
const ACK_TIMEOUT: Duration = Duration::from_secs(11);

/// The time limit of the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

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
            let what = "a certificate: the file contains none";
            return Err(failed(&files.cert, what));
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
    host: String,
    port: u16,
}

impl TcpListener {
    /// Listens at the first address of the host that can be bound.
    pub(crate) async fn bind(host: &str, port: u16, tls: &Tls) -> Result<Self, Error> {
        let listen = Listen::Tcp {
            host: host.to_owned(),
            port,
        };
        let failed = |what: &str| Error::new(format!("cannot listen at {listen}: {what}"));
        let unknown = || failed("its name has no address");
        let addresses = tokio::net::lookup_host((host, port)).await;
        let addresses = addresses.map_err(|error| unknown().with_source(error))?;
        let mut error = unknown();
        for address in addresses {
            let listener = open(address).and_then(|listener| Self::new(listener, host, tls));
            match listener {
                Ok(listener) => return Ok(listener),
                Err(cause) => error = failed(bind_error(&cause)).with_source(cause),
            }
        }
        Err(error)
    }

    /// Listens at a socket that the service manager has opened.
    pub(super) fn from_inherited(socket: Socket, tls: &Tls) -> io::Result<Self> {
        let address = socket.local_addr()?.as_socket();
        let host = address.map_or_else(String::new, |address| address.ip().to_string());
        let socket = tokio::net::TcpListener::from_std(socket.into())?;
        Self::new(socket, &host, tls)
    }

    fn new(socket: tokio::net::TcpListener, host: &str, tls: &Tls) -> io::Result<Self> {
        Ok(Self {
            port: socket.local_addr()?.port(),
            socket,
            tls: tls.clone(),
            host: host.to_owned(),
        })
    }

    pub(super) fn address(&self) -> Listen {
        Listen::Tcp {
            host: self.host.clone(),
            port: self.port,
        }
    }

    pub(super) async fn accept(&self, shared: &Arc<Shared>) -> io::Result<()> {
        let (stream, from) = self.socket.accept().await?;
        let (tls, permit) = (self.tls.clone(), shared.permits.connection());
        let served = serve(stream, from, tls, permit, Arc::clone(shared));
        shared.tasks.spawn(served);
        Ok(())
    }
}

async fn serve(
    stream: TcpStream,
    from: SocketAddr,
    tls: Tls,
    permit: Option<ConnectionPermit>,
    shared: Arc<Shared>,
) {
    let Some(permit) = permit else {
        tracing::warn!(%from, "too many connections, refused a connection");
        return;
    };
    if let Err(error) = set_keepalive(&stream) {
        tracing::warn!(%from, %error, "cannot set the keepalive of a connection");
        return;
    }
    let accepted = tokio::select! {
        accepted = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.0.accept(stream)) => accepted,
        () = permit.displaced() => return,
    };
    match accepted {
        Ok(Ok(stream)) => {
            let connection = Connection::new(&shared, Peer::Remote(from), Box::new(stream));
            connection.run(shared, permit).await;
        }
        Ok(Err(error)) => tracing::warn!(%from, %error, "a TLS handshake failed"),
        Err(_) => tracing::warn!(%from, "a TLS handshake timed out"),
    }
}

/// Has the kernel notice a peer whose machine is unreachable.
fn set_keepalive(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_RETRIES);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(ACK_TIMEOUT))?;
    stream.set_nodelay(true)
}

fn open(address: SocketAddr) -> io::Result<tokio::net::TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// A connection over TLS carries no descriptors.
impl Transport for Box<TlsStream<TcpStream>> {
    type Writer = TlsStream<TcpStream>;

    fn writer(&mut self) -> &mut Self::Writer {
        self
    }

    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut **self).poll_read(context, buffer)
    }

    fn take_descriptor(&mut self) -> Option<OwnedFd> {
        None
    }
}
