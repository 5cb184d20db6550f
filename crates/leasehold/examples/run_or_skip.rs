//! A job on many machines that one of them runs, while the others skip it.
//!
//! ```text
//! cargo run -p leasehold --example run_or_skip sqlite:/tmp/locks.db
//! ```
//!
//! Without a store it starts two jobs in memory.

use std::time::Duration;

use leasehold::{Client, Mutex};

#[tokio::main]
async fn main() -> leasehold::Result<()> {
    let store = std::env::args().nth(1).unwrap_or("memory:".into());
    let client = Client::connect(&store).await?;
    let mutex = client.mutex("nightly-report")?;
    tokio::try_join!(job("a", &mutex), job("b", &mutex))?;
    Ok(())
}

async fn job(machine: &str, mutex: &Mutex) -> leasehold::Result<()> {
    // The work is dropped if the lock is lost. `run_timeout` waits for a while before it skips.
    match mutex.try_run(async |_guard| report().await).await? {
        Some(()) => println!("{machine}: done"),
        None => println!("{machine}: skipped"),
    }
    Ok(())
}

async fn report() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}
