//! The example of a fenced service.

#[path = "../../../examples/fenced_http/layer.rs"]
mod layer;
#[path = "../../../examples/fenced_http/stock.rs"]
mod stock;

use tokio::net::TcpListener;

use super::resources::{exchange, http};

/// Starts the service and gives its address.
pub(super) async fn start() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async { axum::serve(listener, stock::service()).await });
    address
}

/// What is written.
pub(super) async fn read(address: &str) -> String {
    let request = "GET /stock HTTP/1.1\r\nHost: stock\r\nConnection: close\r\n\r\n";
    let (status, response) = exchange(address, request).await;
    assert_eq!(status, 200);
    response.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[tokio::test]
async fn every_refusal_has_a_remedy() {
    let address = start().await;
    assert_eq!(http(&address, &["7"], "5").await.0, 200);
    for (tokens, status, words) in [
        (&["6"][..], 412, "6 is stale: a later holder with 7"),
        (&["6"], 412, "fencing-token: 7"),
        (&[], 428, "needs the fencing token"),
        (&["0"], 400, "decimal number"),
        (&["-7"], 400, "decimal number"),
        (&["7", "8"], 400, "more than once"),
    ] {
        let (replied, text) = http(&address, tokens, "wrong").await;
        assert_eq!(replied, status, "{tokens:?}: {text}");
        assert!(text.contains(words), "{tokens:?}: {text}");
        assert_eq!(read(&address).await, "5");
    }
    assert_eq!(http(&address, &["7"], "6").await.0, 200);
    assert_eq!(read(&address).await, "6");
}
