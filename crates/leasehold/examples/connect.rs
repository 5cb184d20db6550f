//! A client from the settings of a service: any store, a user whose password is in no URL, times, names.
//!
//! ```text
//! cargo run -p leasehold --example connect redis+sentinel://s1,s2,s3/mymaster
//! LOCK_USER=app LOCK_PASSWORD=... cargo run -p leasehold --example connect 'redlock://r1,r2,r3?longest-ttl=30s'
//! ```

use std::time::Duration;

use leasehold::Client;

/// What a service reads from its configuration.
struct Settings {
    /// The kind of store is part of the URL, so that the program is the same for all.
    url: String,
    user: Option<String>,
    password: Option<String>,
    ttl: Duration,
    namespace: String,
}

#[tokio::main]
async fn main() -> leasehold::Result<()> {
    let settings = Settings {
        url: std::env::args().nth(1).unwrap_or("memory:".into()),
        user: std::env::var("LOCK_USER").ok(),
        password: std::env::var("LOCK_PASSWORD").ok(),
        ttl: Duration::from_secs(15),
        namespace: "billing".into(),
    };
    let client = connect(settings).await?;
    // Without the password, as all messages.
    println!("connected to {}", client.store());

    let guard = client.mutex("invoices")?.lock().await?;
    for lock in client.locks().await? {
        let holder = lock.client.unwrap_or_default();
        println!(
            "{} is held by {} ({})",
            lock.name, holder.program, holder.label
        );
    }
    guard.release().await
}

async fn connect(settings: Settings) -> leasehold::Result<Client> {
    let mut builder = Client::builder()
        .ttl(settings.ttl)
        .namespace(settings.namespace)
        .label("invoice run")
        .connect_timeout(Duration::from_secs(2));
    if let Some(user) = settings.user {
        builder = builder.username(user);
    }
    if let Some(password) = settings.password {
        builder = builder.password(password);
    }
    builder.connect(&settings.url).await
}
