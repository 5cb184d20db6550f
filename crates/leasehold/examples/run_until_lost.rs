//! Work that stops when the lock is lost.
//!
//! ```text
//! cargo run -p leasehold --example run_until_lost                # in memory
//! cargo run -p leasehold --example run_until_lost redis://127.0.0.1
//! ```
//!
//! The example causes the loss itself, as an operator with `leasehold release --force` would.

use std::time::Duration;

use leasehold::{Client, ErrorKind, Mutex};

#[tokio::main]
async fn main() -> leasehold::Result<()> {
    let store = std::env::args().nth(1).unwrap_or("memory:".into());
    let client = Client::connect(&store).await?;
    let mutex = client.mutex("import")?;

    // With `run` the work is dropped at its next `.await` after the loss.
    let worked = mutex
        .run(async |guard| {
            println!("importing under token {}", guard.token());
            import(&mutex).await
        })
        .await;
    match worked {
        // The errors of the work are its own: a result inside the result.
        Ok(outcome) => println!("imported: {outcome:?}"),
        Err(error) if error.kind() == ErrorKind::Lost => println!("stopped: {error}"),
        Err(error) => return Err(error),
    }

    // With a guard the loss is one event of a `select!`, and comes with its cause.
    let guard = mutex.lock().await?;
    tokio::select! {
        cause = guard.lost() => println!("stopped: {cause}"),
        outcome = import(&mutex) => println!("imported: {outcome:?}"),
    }
    Ok(())
}

/// Loses its lock on the way.
async fn import(mutex: &Mutex) -> Result<u32, leasehold::Error> {
    mutex.revoke().await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    Ok(1000)
}
