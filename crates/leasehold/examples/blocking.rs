//! The same lock for threads, without an async runtime.
//!
//! ```text
//! cargo run -p leasehold --example blocking                      # in memory
//! cargo run -p leasehold --example blocking sqlite:/tmp/locks.db
//! ```

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use leasehold::blocking::{Client, Mutex};

fn main() -> leasehold::Result<()> {
    let store = std::env::args().nth(1).unwrap_or("memory:".into());
    let client = Client::connect(&store)?;
    let mutex = client.mutex("orders/42")?;

    let inside = AtomicU32::new(0);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| work(&mutex, &inside)))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
    })?;
    println!("four threads, one at a time");

    // A thread is its own owner: it can enter its lock again.
    let outer = mutex.lock()?;
    let inner = mutex.lock()?;
    println!("one lease: {}", outer.lease_id() == inner.lease_id());
    inner.release()?;
    outer.release()
}

fn work(mutex: &Mutex, inside: &AtomicU32) -> leasehold::Result<()> {
    let guard = mutex.lock()?;
    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
    // Nothing interrupts a thread: long work asks now and then.
    if !guard.state().is_lost() {
        thread::yield_now();
    }
    inside.fetch_sub(1, Ordering::SeqCst);
    guard.release()
}
