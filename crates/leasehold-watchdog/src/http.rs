//! The HTTP endpoints of a node: `/metrics`, `/healthz` and `/readyz`.
//!
//! The clients of a node and its stores need the file descriptors. So the connections here take only a few of
//! them, and idle connections keep no request out: one connection too many ends the oldest.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::Error;
use crate::listen::{ACCEPT_BACKOFF, bind_error};
use crate::metrics::MetricsRecorder;
use crate::shared::Shared;
use crate::stores::ServedStore;

/// How many connections may be open at once.
const CONNECTIONS_MAX: usize = 32;

/// The longest time that a connection stays open. Each carries one request.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// The HTTP listener.
pub(crate) struct Http {
    listener: TcpListener,
    address: SocketAddr,
    recorder: MetricsRecorder,
}

struct HttpState {
    shared: Arc<Shared>,
    recorder: MetricsRecorder,
}

impl Http {
    pub(crate) async fn bind(address: SocketAddr) -> Result<Self, Error> {
        let failed = |error: io::Error| {
            let reason = bind_error(&error);
            let message = format!("cannot serve metrics at {address}: {reason}");
            Error::new(message).with_source(error)
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            listener,
            address,
            recorder: MetricsRecorder::install()?,
        })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves requests as long as it is polled.
    pub(crate) async fn run(self, shared: Arc<Shared>) {
        let state = Arc::new(HttpState {
            shared,
            recorder: self.recorder,
        });
        let mut tasks = JoinSet::new();
        let mut oldest_first = VecDeque::new();
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    while tasks.len() >= CONNECTIONS_MAX {
                        oldest_first.pop_front().as_ref().map(AbortHandle::abort);
                        tasks.join_next().await;
                    }
                    oldest_first.retain(|connection| !connection.is_finished());
                    oldest_first.push_back(tasks.spawn(serve(stream, Arc::clone(&state))));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an HTTP connection");
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                }
            }
        }
    }
}

/// Serves one request.
async fn serve(stream: TcpStream, state: Arc<HttpState>) {
    let service = service_fn(|request| {
        let state = Arc::clone(&state);
        async move { Ok::<_, Infallible>(state.response(&request).await) }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // The peer may have sent anything.
    let _ = timeout(CONNECTION_TIMEOUT, connection).await;
}

impl HttpState {
    async fn response(&self, request: &Request<Incoming>) -> Response<String> {
        let reads = [Method::GET, Method::HEAD].contains(request.method());
        let (status, text) = match request.uri().path() {
            "/metrics" | "/healthz" | "/readyz" if !reads => {
                (StatusCode::METHOD_NOT_ALLOWED, String::new())
            }
            "/metrics" => (StatusCode::OK, self.metrics().await),
            "/healthz" => (StatusCode::OK, "alive\n".to_owned()),
            "/readyz" => self.readiness().await,
            _ => (StatusCode::NOT_FOUND, String::new()),
        };
        let mut response = Response::new(text);
        *response.status_mut() = status;
        let content_type = HeaderValue::from_static("text/plain; version=0.0.4");
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        response
    }

    async fn metrics(&self) -> String {
        let mut reachable = vec![false; self.shared.stores.len()];
        let mut checks = self.check_stores();
        while let Some(checked) = checks.join_next().await {
            if let Ok((index, replied)) = checked
                && let Some(store) = reachable.get_mut(index)
            {
                *store = replied;
            }
        }
        self.recorder.render(&self.shared, &reachable)
    }

    /// Whether the node is not about to stop and reaches at least one store.
    async fn readiness(&self) -> (StatusCode, String) {
        let text = if *self.shared.closing.borrow() {
            "about to stop\n"
        } else if !self.is_reachable().await {
            "no store is reachable\n"
        } else {
            return (StatusCode::OK, "ready\n".to_owned());
        };
        (StatusCode::SERVICE_UNAVAILABLE, text.to_owned())
    }

    /// Whether a store is reachable. Does not wait for the others.
    async fn is_reachable(&self) -> bool {
        let mut checks = self.check_stores();
        while let Some(checked) = checks.join_next().await {
            if let Ok((_, true)) = checked {
                return true;
            }
        }
        false
    }

    /// Whether each store is reachable, by its index.
    fn check_stores(&self) -> JoinSet<(usize, bool)> {
        let stores = self.shared.stores.iter().map(Arc::clone);
        let check =
            |store: Arc<ServedStore>| async move { (store.index, store.is_reachable().await) };
        stores.map(check).collect()
    }
}
