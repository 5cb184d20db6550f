//! Ours.

use std::error::Error;

use leasehold::{Client, Guard, Mutex};
use leasehold_peers::{Lock, run};

struct Ours(Mutex);

impl Lock for Ours {
    type Guard = Guard;

    async fn lock(&mut self) -> Result<Guard, Box<dyn Error>> {
        Ok(self.0.lock().await?)
    }

    async fn unlock(&mut self, guard: Guard) -> Result<(), Box<dyn Error>> {
        Ok(guard.release().await?)
    }
}

/// One server, or many of which a majority decides.
fn url(urls: &str) -> String {
    let places: Vec<_> = urls
        .split(',')
        .map(|url| url.trim_start_matches("redis://").trim_end_matches('/'))
        .collect();
    match places.as_slice() {
        [_] => urls.to_owned(),
        places => format!("redlock://{}", places.join(",")),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    run("leasehold", "this tree", async |args| {
        let mut builder = Client::builder();
        if args.variant == "no-handoff" {
            builder = builder.handoff_max(0);
        }
        let many = args.url.contains(',');
        let client = builder.connect(&url(&args.url)).await?;
        if many {
            // Masters are looked at once, before the first lock.
            client.mutex("bench/first")?.lock().await?.release().await?;
        }
        Ok(async move |name: &str| Ok(Ours(client.mutex(name)?)))
    })
}
