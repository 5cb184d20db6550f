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

fn main() -> Result<(), Box<dyn Error>> {
    run("leasehold", "this tree", async |args| {
        let mut builder = Client::builder();
        if args.variant == "no-handoff" {
            builder = builder.handoff_max(0);
        }
        let client = builder.connect(&args.url).await?;
        Ok(async move |name: &str| Ok(Ours(client.mutex(name)?)))
    })
}
