//! A worker that ends on SIGTERM or Ctrl-C and leaves no lock behind.
//!
//! ```text
//! cargo run -p leasehold --example graceful_shutdown             # in memory; then Ctrl-C
//! cargo run -p leasehold --example graceful_shutdown redis://127.0.0.1
//! ```

use std::time::Duration;

use leasehold::{Client, ErrorKind};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = std::env::args().nth(1).unwrap_or("memory:".into());
    let client = Client::connect(&store).await?;
    // Before the first lock: a signal that comes earlier ends the process.
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut worker = tokio::spawn(work(client.clone()));

    tokio::select! {
        _ = term.recv() => println!("ending: SIGTERM"),
        _ = interrupt.recv() => println!("ending: Ctrl-C"),
        ended = &mut worker => return Ok(ended??),
    }

    // Releases all leases in batches and ends all waits. Guards read lost, so the work is dropped. A program that lets the
    // worker end its batch waits for it first.
    let released = client.shutdown(Duration::from_secs(5)).await?;
    println!("released {released}");
    worker.await??;
    Ok(())
}

async fn work(client: Client) -> leasehold::Result<()> {
    let mutex = client.mutex("import")?;
    loop {
        let batch = mutex.run(async |guard| {
            println!("working under token {}", guard.token());
            tokio::time::sleep(Duration::from_secs(60)).await;
        });
        match batch.await {
            Ok(()) => {}
            // During the work, by the shutdown or another loss. After a shutdown the next call has the kind below.
            Err(error) if error.kind() == ErrorKind::Lost => println!("worker: {error}"),
            // While it waited for the lock, or after the shutdown.
            Err(error) if error.kind() == ErrorKind::ShutDown => return Ok(()),
            // The store has not replied, or has refused requests, for a whole ttl.
            Err(error) if error.is_transient() => println!("worker: {error}"),
            Err(error) => return Err(error),
        }
    }
}
