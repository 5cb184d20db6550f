//! A function that locks, called by one that has the lock already.
//!
//! ```text
//! cargo run -p leasehold --example reentry                       # in memory
//! cargo run -p leasehold --example reentry redis://127.0.0.1
//! ```

use leasehold::{Client, Mutex, Owner};

#[tokio::main]
async fn main() -> leasehold::Result<()> {
    let store = std::env::args().nth(1).unwrap_or("memory:".into());
    let client = Client::connect(&store).await?;
    let mutex = client.mutex("ledger")?;

    // Tasks have no identity of their own. Without an owner, `book` would wait for the lock that its caller holds.
    Owner::new().scope(close_day(&mutex)).await?;

    println!("free again: {}", mutex.inspect().await?.is_none());
    Ok(())
}

async fn close_day(mutex: &Mutex) -> leasehold::Result<()> {
    let guard = mutex.lock().await?;
    book(mutex, "fees").await?;
    book(mutex, "interest").await?;
    guard.release().await
}

async fn book(mutex: &Mutex, what: &str) -> leasehold::Result<()> {
    let guard = mutex.lock().await?;
    let holds = mutex.inspect().await?.map_or(0, |lock| lock.count);
    println!("booked {what}, {holds} holds of one lease");
    guard.release().await
}
