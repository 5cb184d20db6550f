//! The listeners of a node.

mod tcp;
mod unix;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use socket2::Socket;

use crate::Error;
use crate::settings::{Listen, Settings};
use crate::shared::Shared;

pub(crate) use self::tcp::{TcpListener, Tls};
pub(crate) use self::unix::UnixListener;

/// The backoff after an error of accepting a connection, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

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
        given: &mut Vec<OwnedFd>,
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
            Listen::Systemd if given.is_empty() => Err(Error::new(
                "cannot listen at systemd: the service manager has given no socket to this process",
            )),
            Listen::Systemd => {
                let sockets = given.drain(..);
                sockets.map(|socket| Self::given(socket, tls)).collect()
            }
        }
    }

    /// Listens at a socket that the service manager has opened.
    fn given(socket: OwnedFd, tls: Option<&Tls>) -> Result<Self, Error> {
        let socket = Socket::from(socket);
        let failed = |what: &str| Error::new(format!("cannot listen at a given socket: {what}"));
        let address = socket.local_addr();
        let address = address.map_err(|error| failed("it is not a socket").with_source(error))?;
        if !socket.is_listener().unwrap_or(false) {
            return Err(failed("it is not a listening socket"));
        }
        let nonblocking = socket.set_nonblocking(true);
        nonblocking.map_err(|error| failed("it cannot be used").with_source(error))?;
        if address.is_unix() {
            Ok(Self::Unix(UnixListener::given(socket)?))
        } else {
            let tls = tls.ok_or_else(|| needs_tls(&Listen::Systemd))?;
            Ok(Self::Tcp(TcpListener::given(socket, tls)?))
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
        match self {
            Self::Unix(listener) => listener.run(shared).await,
            Self::Tcp(listener) => listener.run(shared).await,
        }
    }
}

fn needs_tls(listen: &Listen) -> Error {
    Error::new(format!(
        "listening at {listen} needs a certificate: TCP connections always use TLS"
    ))
}

/// Waits after an error of accepting a connection.
async fn pause(address: &Listen, error: &std::io::Error) {
    tracing::warn!(%address, %error, "cannot accept a connection");
    tokio::time::sleep(PAUSE).await;
}
