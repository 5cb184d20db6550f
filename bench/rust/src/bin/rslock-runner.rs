//! `rslock`: `acquire` waits by asking again after a random pause of at most `retry_delay`, 200 ms if
//! not set.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use leasehold_runners::{Lock, run};
use rslock::{LockGuard, LockManager};

const TTL: Duration = Duration::from_secs(30);

struct RslockLock {
    manager: Arc<LockManager>,
    name: String,
}

impl Lock for RslockLock {
    type Guard = rslock::Lock;

    async fn lock(&self) -> Result<rslock::Lock, Box<dyn Error>> {
        Ok(self
            .manager
            .acquire_no_guard(self.name.as_bytes(), TTL)
            .await?)
    }

    async fn unlock(&self, lock: rslock::Lock) -> Result<(), Box<dyn Error>> {
        LockGuard { lock }.release().await;
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    run("0.10.0", async |args| {
        let mut manager = LockManager::new(args.url.split(',').map(str::to_owned).collect());
        if args.variant == "fastest" {
            manager.set_retry(3, Duration::from_millis(5));
        }
        let manager = Arc::new(manager);
        Ok(async move |name: &str| {
            Ok(RslockLock {
                manager: Arc::clone(&manager),
                name: name.to_owned(),
            })
        })
    })
}
