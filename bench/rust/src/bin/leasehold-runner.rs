//! Leasehold.

use std::error::Error;

use leasehold::{Client, Guard, Mutex};
use leasehold_runners::{Lock, run};

struct LeaseholdLock(Mutex);

impl Lock for LeaseholdLock {
    type Guard = Guard;

    async fn lock(&self) -> Result<Guard, Box<dyn Error>> {
        Ok(self.0.lock().await?)
    }

    async fn unlock(&self, guard: Guard) -> Result<(), Box<dyn Error>> {
        Ok(guard.release().await?)
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
        Ok(async move |name: &str| Ok(LeaseholdLock(client.mutex(name)?)))
    })
}
