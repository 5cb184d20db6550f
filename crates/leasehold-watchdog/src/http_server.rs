//! A small HTTP server for metrics and probes.
//!
//! The other parts of its process need the file descriptors. So the connections here take only a few of them, and idle
//! connections keep no request out: one connection too many ends the oldest.

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

/// How many connections may be open at once.
const CONNECTIONS_MAX: usize = 32;

/// The longest time that a connection stays open. Each carries one request.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// A listener for HTTP requests.
pub(crate) struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
}

impl HttpServer {
    /// Listens at an address. The error says what cannot be served there.
    pub(crate) async fn bind(address: SocketAddr, what: &str) -> Result<Self, Error> {
        let failed = |error: io::Error| {
            let reason = bind_error(&error);
            Error::new(format!("cannot serve {what} at {address}: {reason}")).with_source(error)
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves requests as long as it is polled. `respond` gets the path of a request, and returns `None` if there is no
    /// such path.
    pub(crate) async fn run<R, F>(self, respond: R)
    where
        R: Fn(String) -> F + Send + Sync + 'static,
        F: Future<Output = Option<(StatusCode, String)>> + Send + 'static,
    {
        let respond = Arc::new(respond);
        let mut tasks = JoinSet::new();
        let mut oldest_first = VecDeque::new();
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    // Connections that have ended are not among those that are open.
                    while tasks.try_join_next().is_some() {}
                    while tasks.len() >= CONNECTIONS_MAX {
                        oldest_first.pop_front().as_ref().map(AbortHandle::abort);
                        tasks.join_next().await;
                    }
                    oldest_first.retain(|connection| !connection.is_finished());
                    oldest_first.push_back(tasks.spawn(serve(stream, Arc::clone(&respond))));
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
async fn serve<R, F>(stream: TcpStream, respond: Arc<R>)
where
    R: Fn(String) -> F,
    F: Future<Output = Option<(StatusCode, String)>>,
{
    let service = service_fn(|request: Request<Incoming>| {
        let reads = [Method::GET, Method::HEAD].contains(request.method());
        let found = respond(request.uri().path().to_owned());
        async move {
            let (status, text) = match found.await {
                None => (StatusCode::NOT_FOUND, String::new()),
                Some(_) if !reads => (StatusCode::METHOD_NOT_ALLOWED, String::new()),
                Some(response) => response,
            };
            let mut response = Response::new(text);
            *response.status_mut() = status;
            let content_type = HeaderValue::from_static("text/plain; version=0.0.4");
            response.headers_mut().insert(CONTENT_TYPE, content_type);
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // The peer may have sent anything.
    let _ = timeout(CONNECTION_TIMEOUT, connection).await;
}
