//! A service of which one process works and the others stand by.
//!
//! ```text
//! cargo run -p leasehold --example singleton sqlite:/tmp/locks.db    # in two terminals; then kill one
//! ```
//!
//! The next process takes over when the lease of the dead one ends, here after five seconds. A watchdog on the machine
//! of the dead process releases the lease within milliseconds: see `docs/watchdog.md`.

use std::time::Duration;

use leasehold::{Client, ErrorKind, Guard};

#[tokio::main]
async fn main() -> leasehold::Result<()> {
    let store = std::env::args().nth(1).unwrap_or("memory:".into());
    let client = Client::builder()
        .ttl(Duration::from_secs(5))
        .label("singleton")
        .connect(&store)
        .await?;
    let mutex = client.mutex("scheduler")?;
    loop {
        println!("standing by");
        match mutex.run(serve).await {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Lost => println!("lost: {error}"),
            // The store is away, or recovers. `lock` has waited for it for a whole ttl.
            Err(error) if error.is_transient() => println!("waiting: {error}"),
            Err(error) => return Err(error),
        }
    }
}

/// Works until the lock is lost. The token is the term of this leader: larger than those of all before.
async fn serve(guard: &Guard) {
    println!("leading, term {}", guard.token());
    std::future::pending::<()>().await;
}
