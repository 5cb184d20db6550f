//! The HTTP endpoints of a node: `/metrics`, `/healthz` and `/readyz`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::StatusCode;
use tokio::task::JoinSet;

use crate::Error;
use crate::http_server::HttpServer;
use crate::listen::bind_error;
use crate::metrics::MetricsRecorder;
use crate::shared::Shared;
use crate::stores::ServedStore;

/// The HTTP listener.
pub(crate) struct Http {
    server: HttpServer,
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
        Ok(Self {
            server: HttpServer::bind(address).await.map_err(failed)?,
            recorder: MetricsRecorder::install()?,
        })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Serves requests as long as it is polled.
    pub(crate) async fn run(self, shared: Arc<Shared>) {
        let state = Arc::new(HttpState {
            shared,
            recorder: self.recorder,
        });
        let response = move |path| {
            let state = Arc::clone(&state);
            async move { state.response(path).await }
        };
        self.server.run(response).await;
    }
}

impl HttpState {
    /// `None`: there is no such path.
    async fn response(&self, path: String) -> Option<(StatusCode, String)> {
        match &*path {
            "/metrics" => Some((StatusCode::OK, self.metrics().await)),
            "/healthz" => Some((StatusCode::OK, "alive\n".to_owned())),
            "/readyz" => Some(self.readiness().await),
            _ => None,
        }
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
