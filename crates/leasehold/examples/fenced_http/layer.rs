//! A layer for axum: whoever changes something must bring a fencing token that is not stale.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use leasehold::Token;
use leasehold::fence::{Gate, header};
use tokio::sync::Mutex;

/// What one lock protects: its gate, and the right to change it.
///
/// It forgets the newest token when the process ends. A service whose data stays keeps the token with
/// the data, and admits it first when it starts.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    gate: Gate,
    turn: Mutex<()>,
}

/// Lets reads pass, and changes one after the other, if their token is not stale. Add it by
/// `axum::middleware::from_fn_with_state(Arc::new(Fence::default()), fenced)`.
pub(crate) async fn fenced(
    State(fence): State<Arc<Fence>>,
    request: Request,
    next: Next,
) -> Response {
    if request.method().is_safe() {
        return next.run(request).await;
    }
    let token = match token(request.headers()) {
        Ok(token) => token,
        Err(refused) => return refused.into_response(),
    };
    // Asking and writing must be one step: a request that was admitted and then stood still would
    // overwrite what a later holder wrote meanwhile.
    let _turn = fence.turn.lock().await;
    match fence.gate.admit(token) {
        Ok(()) => next.run(request).await,
        Err(stale) => {
            let newest = [(header::NAME, stale.newest.to_string())];
            let text = format!("{stale}; nothing was changed, stop\n");
            (StatusCode::PRECONDITION_FAILED, newest, text).into_response()
        }
    }
}

fn token(headers: &HeaderMap) -> Result<Token, (StatusCode, String)> {
    let name = header::NAME;
    let values: Vec<&HeaderValue> = headers.get_all(name).iter().collect();
    match values[..] {
        [] => {
            let text =
                format!("a change needs the fencing token of its lock in the header {name}\n");
            Err((StatusCode::PRECONDITION_REQUIRED, text))
        }
        [value] => header::parse(value.as_bytes()).ok_or_else(|| {
            let max = Token::MAX;
            let text = format!("the header {name} must be a decimal number from 1 to {max}\n");
            (StatusCode::BAD_REQUEST, text)
        }),
        _ => {
            let text = format!("the header {name} stands there more than once\n");
            Err((StatusCode::BAD_REQUEST, text))
        }
    }
}
