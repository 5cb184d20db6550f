//! A health endpoint for the probes of a scheduler such as Kubernetes.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::StatusCode;

use crate::Error;
use crate::http_server::HttpServer;

/// The path that a probe requests.
const PATH: &str = "/healthz";

/// A process that answers probes at `/healthz`.
pub struct HealthEndpoint(HttpServer);

impl HealthEndpoint {
    /// Listens at an address.
    ///
    /// # Errors
    ///
    /// The reason if that is not possible, such as an address in use.
    pub async fn bind(address: SocketAddr) -> Result<Self, Error> {
        Ok(Self(HttpServer::bind(address, "probes").await?))
    }

    /// The address that it listens at.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Answers probes as long as it is polled: with 200 and the text if `state` is `Ok`, otherwise with 500.
    pub async fn run<S>(self, state: S)
    where
        S: Fn() -> Result<&'static str, &'static str> + Send + Sync + 'static,
    {
        let state = Arc::new(state);
        let respond = move |path: String| {
            let state = Arc::clone(&state);
            async move {
                let (status, text) = match state() {
                    Ok(text) => (StatusCode::OK, text),
                    Err(text) => (StatusCode::INTERNAL_SERVER_ERROR, text),
                };
                (path == PATH).then(|| (status, format!("{text}\n")))
            }
        };
        self.0.run(respond).await;
    }
}

impl fmt::Debug for HealthEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HealthEndpoint({})", self.address())
    }
}
