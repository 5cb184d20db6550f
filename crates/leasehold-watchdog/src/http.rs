//! The HTTP endpoints of a node: `/metrics`, `/healthz` and `/readyz`.

mod limited;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::Mutex;
use tokio::time::Instant;

use self::limited::Limited;
use crate::Error;
use crate::metrics::MetricsRecorder;
use crate::shared::Shared;

/// How long the result of a readiness check is reused, so that frequent checks do not load the stores.
const FRESH: Duration = Duration::from_secs(1);

/// The time in which a store must reply to a readiness check.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// The HTTP listener.
pub(crate) struct Http {
    listener: tokio::net::TcpListener,
    address: SocketAddr,
    figures: MetricsRecorder,
}

struct Told {
    shared: Arc<Shared>,
    figures: MetricsRecorder,
    /// The last readiness check: its time, and whether a store was reachable.
    reachable: Mutex<Option<(Instant, bool)>>,
}

impl Http {
    pub(crate) async fn bind(address: SocketAddr) -> Result<Self, Error> {
        let failed = |error: std::io::Error| {
            let why = match error.kind() {
                std::io::ErrorKind::AddrInUse => "the port is taken",
                std::io::ErrorKind::PermissionDenied => "this user may not listen at the port",
                _ => "the socket cannot be opened",
            };
            let message = format!("cannot tell figures at {address}: {why}");
            Error::new(message).with_source(error)
        };
        let listener = tokio::net::TcpListener::bind(address)
            .await
            .map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            listener,
            address,
            figures: MetricsRecorder::begin()?,
        })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves requests as long as it is polled.
    pub(crate) async fn run(self, shared: Arc<Shared>) {
        let told = Arc::new(Told {
            shared,
            figures: self.figures,
            reachable: Mutex::new(None),
        });
        let router = Router::new()
            .route("/metrics", get(metrics))
            .route("/healthz", get(async || "alive\n"))
            .route("/readyz", get(readiness))
            .layer(map_response(last))
            .with_state(told);
        if let Err(error) = axum::serve(Limited::new(self.listener), router).await {
            tracing::error!(%error, "the HTTP server has stopped");
        }
    }
}

/// A connection carries one request, so that its time is bounded.
async fn last(mut response: Response) -> Response {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    response
}

async fn metrics(State(told): State<Arc<Told>>) -> impl IntoResponse {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (kind, told.figures.render(&told.shared))
}

/// Whether the node is not about to stop and reaches at least one store.
async fn readiness(State(told): State<Arc<Told>>) -> (StatusCode, &'static str) {
    if *told.shared.closing.borrow() {
        return (StatusCode::SERVICE_UNAVAILABLE, "about to stop\n");
    }
    match told.is_reachable().await {
        true => (StatusCode::OK, "ready\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "no store is reachable\n"),
    }
}

impl Told {
    async fn is_reachable(&self) -> bool {
        let mut known = self.reachable.lock().await;
        if let Some((when, reachable)) = *known
            && when.elapsed() < FRESH
        {
            return reachable;
        }
        let mut reachable = false;
        for store in &self.shared.stores {
            let asked = tokio::time::timeout(ANSWER_WITHIN, store.is_reachable());
            if asked.await.unwrap_or(false) {
                reachable = true;
                break;
            }
        }
        *known = Some((Instant::now(), reachable));
        reachable
    }
}
