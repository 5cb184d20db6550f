//! The listeners of a node.

mod tcp;
mod unix;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use socket2::Socket;

use crate::Error;
use crate::settings::{Listen, Settings};
use crate::shared::Shared;

pub(crate) use self::tcp::{TcpListener, Tls};
pub(crate) use self::unix::UnixListener;

/// How many connections may wait to be accepted. The kernel caps it at `net.core.somaxconn`.
const BACKLOG: u32 = 4_096;

/// The backoff after an error of accepting a connection, such as too many open files.
pub(crate) const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// A listener of a node.
pub(crate) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    /// Listens at an address.
    pub(crate) async fn bind(
        listen: &Listen,
        settings: &Settings,
        tls: Option<&Tls>,
        inherited: &mut Vec<OwnedFd>,
    ) -> Result<Vec<Self>, Error> {
        match listen {
            Listen::Unix(path) => {
                let listener = UnixListener::bind(path, settings.socket_mode)?;
                Ok(vec![Self::Unix(listener)])
            }
            Listen::Tcp { host, port } => {
                let tls = tls.ok_or_else(|| needs_tls(listen))?;
                let listener = TcpListener::bind(host, *port, tls).await?;
                Ok(vec![Self::Tcp(listener)])
            }
            Listen::Systemd if inherited.is_empty() => Err(Error::new(
                "cannot listen at systemd: the service manager has given no socket to this process",
            )),
            Listen::Systemd => {
                let sockets = inherited.drain(..).map(Socket::from);
                sockets.map(|it| Self::from_inherited(it, tls)).collect()
            }
        }
    }

    /// Listens at a socket that the service manager has opened.
    fn from_inherited(socket: Socket, tls: Option<&Tls>) -> Result<Self, Error> {
        let failed = |what: &str| Error::new(format!("cannot listen at a given socket: {what}"));
        let unusable = |error: io::Error| failed("it cannot be used").with_source(error);
        let address = socket.local_addr();
        let address = address.map_err(|error| failed("it is not a socket").with_source(error))?;
        if !socket.is_listener().unwrap_or(false) {
            return Err(failed("it is not a listening socket"));
        }
        socket.set_nonblocking(true).map_err(unusable)?;
        if address.is_unix() {
            let listener = UnixListener::from_inherited(socket);
            Ok(Self::Unix(listener.map_err(unusable)?))
        } else {
            let tls = tls.ok_or_else(|| needs_tls(&Listen::Systemd))?;
            let listener = TcpListener::from_inherited(socket, tls);
            Ok(Self::Tcp(listener.map_err(unusable)?))
        }
    }

    /// The address, with the port that was bound.
    pub(crate) fn address(&self) -> Listen {
        match self {
            Self::Unix(listener) => listener.address(),
            Self::Tcp(listener) => listener.address(),
        }
    }

    /// Accepts connections as long as it is polled.
    pub(crate) async fn run(self, shared: Arc<Shared>) {
        loop {
            let accepted = match &self {
                Self::Unix(listener) => listener.accept(&shared).await,
                Self::Tcp(listener) => listener.accept(&shared).await,
            };
            if let Err(error) = accepted {
                tracing::warn!(address = %self.address(), %error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}

fn needs_tls(listen: &Listen) -> Error {
    Error::new(format!(
        "listening at {listen} needs a certificate: TCP connections always use TLS; name it and its key with --tls-cert \
         and --tls-key"
    ))
}

/// Why a port could not be bound, for people.
pub(crate) fn bind_error(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "the port is taken",
        io::ErrorKind::AddrNotAvailable => "this machine does not have the address",
        io::ErrorKind::PermissionDenied => "this user may not listen at the port",
        _ => "the socket cannot be opened",
    }
}
