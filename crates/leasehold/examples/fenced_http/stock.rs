//! The service itself knows nothing of tokens.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use tokio::sync::Mutex;

use super::layer::{Fence, fenced};

type Stock = Arc<Mutex<String>>;

/// One number under `/stock`: GET reads it, PUT changes it.
pub(crate) fn service() -> Router {
    let fence = Arc::new(Fence::default());
    Router::new()
        .route("/stock", get(read).put(change))
        .layer(from_fn_with_state(fence, fenced))
        .with_state(Stock::default())
}

async fn read(State(stock): State<Stock>) -> String {
    stock.lock().await.clone()
}

async fn change(State(stock): State<Stock>, body: String) -> &'static str {
    *stock.lock().await = body;
    "changed\n"
}
