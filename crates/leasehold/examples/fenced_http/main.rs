//! A service that refuses late holders.
//!
//! ```text
//! cargo run -p leasehold --example fenced_http                   # or with an address: 127.0.0.1:8081
//! leasehold run stock -- sh -c \
//!   'curl -X PUT -H "Fencing-Token: $LEASEHOLD_TOKEN" -d 5 http://127.0.0.1:8080/stock'
//! curl http://127.0.0.1:8080/stock
//! curl -i -X PUT -H "Fencing-Token: 1" -d 6 http://127.0.0.1:8080/stock    # 412: late
//! ```

mod layer;
mod stock;

use std::error::Error;

use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, stock::service()).await?;
    Ok(())
}
