//! The HTTP endpoints of a node: `/metrics`, `/healthz` and `/readyz`.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::StatusCode;
use tokio::task::JoinSet;

use crate::Error;
use crate::http_server::HttpServer;
use crate::metrics::MetricsRecorder;
use crate::shared::Shared;
use crate::stores::ServedStore;

/// What the endpoints report.
pub(crate) struct Http {
    shared: Arc<Shared>,
    recorder: MetricsRecorder,
}

impl Http {
    /// Listens at an address. Returns the one that was bound, and the task that serves requests there.
    pub(crate) async fn bind(
        address: SocketAddr,
        shared: Arc<Shared>,
    ) -> Result<(SocketAddr, impl Future<Output = ()> + Send), Error> {
        let server = HttpServer::bind(address, "metrics").await?;
        let recorder = MetricsRecorder::install()?;
        let http = Arc::new(Self { shared, recorder });
        let respond = move |path| {
            let http = Arc::clone(&http);
            async move { http.response(path).await }
        };
        Ok((server.address(), server.run(respond)))
    }

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
