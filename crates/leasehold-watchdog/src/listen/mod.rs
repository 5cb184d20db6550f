//! Where a node listens.

mod tcp;
mod unix;

use std::sync::Arc;
use std::time::Duration;

use crate::Error;
use crate::settings::{Listen, Settings};
use crate::shared::Shared;

pub(crate) use self::tcp::{TcpListener, Tls};
pub(crate) use self::unix::UnixListener;

/// The pause after an error that is not the fault of who wants to connect: there are too many files.
const PAUSE: Duration = Duration::from_millis(100);

/// One place where a node listens.
pub(crate) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    /// Begins to listen at an address.
    pub(crate) async fn bind(
        listen: &Listen,
        settings: &Settings,
        tls: Option<&Tls>,
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
            Listen::Systemd => Err(Error::new("not yet")),
        }
    }

    /// Where it listens, really.
    pub(crate) fn address(&self) -> Listen {
        match self {
            Self::Unix(listener) => listener.address(),
            Self::Tcp(listener) => listener.address(),
        }
    }

    /// Lets in whoever comes, as long as it is polled.
    pub(crate) async fn run(self, shared: Arc<Shared>) {
        match self {
            Self::Unix(listener) => listener.run(shared).await,
            Self::Tcp(listener) => listener.run(shared).await,
        }
    }
}

fn needs_tls(listen: &Listen) -> Error {
    Error::new(format!(
        "whoever listens at {listen} needs a certificate: over TCP there is nothing but TLS"
    ))
}

/// Waits after an error of accepting a connection.
async fn pause(address: &Listen, error: &std::io::Error) {
    tracing::warn!(%address, %error, "cannot let somebody in");
    tokio::time::sleep(PAUSE).await;
}
