//! Ways to acquire a lock: try once, wait with a limit, wait without one.
//!
//! ```text
//! cargo run -p leasehold --example locking                       # in memory
//! cargo run -p leasehold --example locking redis://127.0.0.1
//! ```

use std::time::Duration;

use leasehold::{Client, LeaseOptions};

#[tokio::main]
async fn main() -> leasehold::Result<()> {
    let store = std::env::args().nth(1).unwrap_or("memory:".into());
    let client = Client::connect(&store).await?;
    let mutex = client.mutex("orders/42")?;

    // Waits. The lease is renewed in the background until the guard is released or dropped.
    let guard = mutex.lock().await?;
    println!("held, fencing token {}", guard.token());

    // A refusal is not an error. Each acquisition excludes all others, also those of the same task.
    if mutex.try_lock().await?.is_none() {
        println!("try_lock: refused");
    }
    let limit = Duration::from_millis(50);
    if mutex.lock_timeout(limit).await?.is_none() {
        println!("lock_timeout: refused after {limit:?}");
    }

    // At least five more seconds of the lease, or an error. For a step that must not be cut off.
    guard.ensure(Duration::from_secs(5)).await?;

    // Reports a lease that was lost before. A dropped guard also releases, but in the background.
    guard.release().await?;

    // A fixed lease is never renewed.
    let fixed = mutex.with(LeaseOptions::new().fixed(Duration::from_secs(2)))?;
    if let Some(guard) = fixed.lock_timeout(limit).await? {
        println!("held, token {}, for two seconds at most", guard.token());
        guard.release().await?;
    }
    Ok(())
}
