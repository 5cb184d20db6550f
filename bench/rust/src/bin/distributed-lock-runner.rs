//! `distributed-lock`: its mutex on Redis gives up at the first conflict, so its user asks again: by
//! default after 50 ms, with which its other locks begin.

use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_redis::{RedisDistributedLock, RedisLockHandle, RedisLockProvider};
use leasehold_runners::{Lock, run};

struct DistributedLockLock {
    provider: Rc<RedisLockProvider>,
    name: String,
    pause: Duration,
}

impl Lock for DistributedLockLock {
    type Guard = RedisLockHandle;

    async fn lock(&self) -> Result<RedisLockHandle, Box<dyn Error>> {
        loop {
            // An id is drawn for each of its lock objects, so each attempt has one of its own.
            let lock: RedisDistributedLock = self.provider.create_lock(&self.name);
            if let Some(handle) = lock.try_acquire().await? {
                return Ok(handle);
            }
            tokio::time::sleep(self.pause).await;
        }
    }

    async fn unlock(&self, guard: RedisLockHandle) -> Result<(), Box<dyn Error>> {
        Ok(guard.release().await?)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    run("0.2.0", async |args| {
        let provider = RedisLockProvider::builder()
            .url(args.url.clone())
            .build()
            .await?;
        let provider = Rc::new(provider);
        let pause = match args.variant.as_str() {
            "fastest" => Duration::from_millis(1),
            _ => Duration::from_millis(50),
        };
        Ok(async move |name: &str| {
            Ok(DistributedLockLock {
                provider: Rc::clone(&provider),
                name: name.to_owned(),
                pause,
            })
        })
    })
}
