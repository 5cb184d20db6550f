//! Leasehold.

use std::cell::Cell;
use std::error::Error;

use leasehold::{Client, Guard, Mutex, Permit, ReadGuard, RwLock, Semaphore, WriteGuard};
use leasehold_runners::{Lock, run};

const PERMITS: u32 = 5;

/// One of so many acquisitions of a read-write lock is that of a writer.
const WRITES: u32 = 10;

enum LeaseholdLock {
    Mutex(Mutex),
    Semaphore(Semaphore),
    /// With the number of the next acquisition.
    RwLock(RwLock, Cell<u32>),
}

enum AnyGuard {
    Mutex(Guard),
    Permit(Permit),
    Reader(ReadGuard),
    Writer(WriteGuard),
}

impl Lock for LeaseholdLock {
    type Guard = AnyGuard;

    async fn lock(&self) -> Result<AnyGuard, Box<dyn Error>> {
        Ok(match self {
            Self::Mutex(mutex) => AnyGuard::Mutex(mutex.lock().await?),
            Self::Semaphore(semaphore) => AnyGuard::Permit(semaphore.acquire().await?),
            Self::RwLock(lock, next) => {
                let number = next.replace(next.get().wrapping_add(1));
                match number.is_multiple_of(WRITES) {
                    true => AnyGuard::Writer(lock.write().await?),
                    false => AnyGuard::Reader(lock.read().await?),
                }
            }
        })
    }

    async fn unlock(&self, held: AnyGuard) -> Result<(), Box<dyn Error>> {
        match held {
            AnyGuard::Mutex(guard) => guard.release().await?,
            AnyGuard::Permit(permit) => permit.release().await?,
            AnyGuard::Reader(guard) => guard.release().await?,
            AnyGuard::Writer(guard) => guard.release().await?,
        }
        Ok(())
    }
}

/// Many servers are the masters of `redlock://`. New ones are admitted when they are as old as the longest ttl.
fn url(urls: &str) -> String {
    let hosts = urls.replace("redis://", "").replace('/', "");
    match urls.contains(',') {
        true => format!("redlock://{hosts}?longest-ttl=30s"),
        false => urls.to_owned(),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    run("this tree", async |args| {
        let mut builder = Client::builder();
        match args.variant.as_str() {
            "no-handoff" => builder = builder.handoff_max(0),
            "buckets" => builder = builder.namespace("bench@16"),
            _ => {}
        }
        let many = args.url.contains(',');
        let client = builder.connect(&url(&args.url)).await?;
        if many {
            // The first lock waits for their admission.
            client.mutex("bench/first")?.lock().await?.release().await?;
        }
        let primitive = args.primitive.clone();
        let mut task = 0;
        Ok(async move |name: &str| {
            // Tasks do not write all at once.
            let first = task;
            task += 1;
            Ok(match primitive.as_str() {
                "semaphore" => LeaseholdLock::Semaphore(client.semaphore(name, PERMITS)?),
                "rw-lock" => LeaseholdLock::RwLock(client.rw_lock(name)?, Cell::new(first)),
                _ => LeaseholdLock::Mutex(client.mutex(name)?),
            })
        })
    })
}
