//! A program that is tested without a server and without waiting: its store is in memory, and the test moves the clock.
//!
//! ```text
//! cargo run -p leasehold --example testing
//! ```
//!
//! `docs/testing.md` has the rules for such tests.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::ManualClock;
use leasehold::store::MemoryStore;
use leasehold::{Client, ErrorKind, LeaseOptions, Ran, State};
use tokio::task::yield_now;

/// The ttl of a client without another setting.
const TTL: Duration = Duration::from_secs(30);

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The code under test. It is given its client, so a test can give it one on another store.
async fn report(client: &Client) -> leasehold::Result<&'static str> {
    let job = client.job("report", DAY)?;
    match job.try_run(async |_run| write().await).await? {
        Ran::Now(text) => Ok(text),
        Ran::Before(_) => Ok("written before"),
        Ran::Busy => Ok("being written"),
    }
}

async fn write() -> leasehold::Result<&'static str> {
    Ok("written")
}

/// The processes of a test, as clients of one store.
struct World {
    clock: ManualClock,
    store: Arc<MemoryStore>,
}

impl World {
    fn new() -> Self {
        let clock = ManualClock::new();
        let store = Arc::new(MemoryStore::with_clock(Arc::new(clock.clone())));
        Self { clock, store }
    }

    /// One more process.
    async fn process(&self) -> leasehold::Result<Client> {
        let builder = Client::builder().clock(Arc::new(self.clock.clone()));
        builder.connect(Arc::clone(&self.store)).await
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    one_process_writes_the_report_of_a_day().await?;
    a_lock_is_free_when_the_lease_of_a_dead_holder_has_ended().await?;
    a_process_waits_while_the_holder_renews_its_lease().await?;
    work_ends_when_its_lock_is_lost().await?;
    Ok(())
}

async fn one_process_writes_the_report_of_a_day() -> leasehold::Result<()> {
    let world = World::new();
    let (a, b) = (world.process().await?, world.process().await?);
    assert_eq!(report(&a).await?, "written");
    assert_eq!(report(&b).await?, "written before");
    world.clock.advance(DAY);
    assert_eq!(report(&b).await?, "written");
    println!("one process writes the report of a day");
    Ok(())
}

async fn a_lock_is_free_when_the_lease_of_a_dead_holder_has_ended() -> leasehold::Result<()> {
    let world = World::new();
    let (dead, next) = (world.process().await?, world.process().await?);
    // A fixed lease is not renewed, as the lease of a process that has died.
    let lease = Duration::from_secs(30);
    let fixed = LeaseOptions::new().fixed(lease);
    let held = dead.mutex("orders/42")?.with(fixed)?.lock().await?;
    let mutex = next.mutex("orders/42")?;
    assert!(mutex.try_lock().await?.is_none());
    world.clock.advance(lease);
    assert!(matches!(held.state(), State::Lost(_)));
    assert!(mutex.try_lock().await?.is_some());
    println!("a lock is free when the lease of a dead holder has ended");
    Ok(())
}

async fn a_process_waits_while_the_holder_renews_its_lease() -> Result<(), Box<dyn Error>> {
    let world = World::new();
    let (holder, next) = (world.process().await?, world.process().await?);
    let held = holder.mutex("orders/42")?.lock().await?;
    let mutex = next.mutex("orders/42")?;
    let waiter = mutex.clone();
    let waiting = tokio::spawn(async move { waiter.lock().await });
    // One `.await` may not be enough: the task waits when it is in the queue.
    while mutex
        .inspect()
        .await?
        .is_none_or(|lock| lock.waiters.is_empty())
    {
        yield_now().await;
    }
    for _ in 0..6 {
        world.clock.advance(TTL / 3);
        settle().await;
    }
    assert!(held.state().is_held());
    assert!(!waiting.is_finished());
    held.release().await?;
    waiting.await??.release().await?;
    println!("a process waits while the holder renews its lease");
    Ok(())
}

/// Lets the tasks run, such as those that renew leases: the runtime has one thread, so each yield is a turn of each task.
async fn settle() {
    for _ in 0..50 {
        yield_now().await;
    }
}

async fn work_ends_when_its_lock_is_lost() -> leasehold::Result<()> {
    let world = World::new();
    let (holder, operator) = (world.process().await?, world.process().await?);
    let (mutex, operator) = (holder.mutex("orders/42")?, operator.mutex("orders/42")?);
    let work = mutex.run(async |_guard| {
        // As `leasehold release --force` does.
        operator.revoke().await?;
        std::future::pending::<leasehold::Result<()>>().await
    });
    assert!(
        work.await
            .is_err_and(|error| error.kind() == ErrorKind::Lost)
    );
    println!("work ends when its lock is lost");
    Ok(())
}
