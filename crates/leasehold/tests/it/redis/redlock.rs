//! The store over many masters, real ones.

mod admission;
mod clocks;
mod forgotten;
mod kept_out;
mod late;
mod load;
mod majority;
mod proposals;
mod refused;
mod values;

use std::time::Instant;

use leasehold_testkit::{Masters, Proxy, Restart, addresses};

use super::*;
use crate::waiters::spawn_waiter;

/// Not so short that a busy machine lets it end, and so much shorter than [`LONG`].
const TTL: Duration = Duration::from_secs(9);

/// With this ttl a phase may take a quarter of a second.
const LONG_TTL: Duration = Duration::from_secs(60);

/// The number of masters that have a record of a lock.
fn records(masters: &[&RedisServer], name: &str) -> usize {
    let has = |server: &&&RedisServer| server.cli(&["EXISTS", &record(name)]) == "1";
    masters.iter().filter(has).count()
}

fn all(masters: &Masters) -> Vec<&RedisServer> {
    masters.servers().iter().collect()
}

/// Masters behind proxies.
struct Proxied {
    masters: Masters,
    proxies: Vec<Proxy>,
}

impl Proxied {
    fn start(count: usize) -> Self {
        let masters = Masters::aged(count);
        let proxies = masters.servers().iter().map(Proxy::before).collect();
        Self { masters, proxies }
    }

    fn url(&self) -> String {
        let ports: Vec<_> = self.proxies.iter().map(Proxy::port).collect();
        at(&ports)
    }

    /// The number of requests to each master that contain a word.
    fn counted(&self, word: &str) -> Vec<usize> {
        let proxies = self.proxies.iter();
        proxies.map(|proxy| proxy.counted(word)).collect()
    }

    /// Acquires and releases the lock `a`, and waits until it is free.
    async fn lock_and_release(&self, client: &Client) {
        lock(client, "a").await.release().await.unwrap();
        self.until_free("a").await;
    }

    /// Waits until no master has a record of a lock, long before it would expire.
    async fn until_free(&self, name: &str) {
        eventually_async(LONG, async || records(&all(&self.masters), name) == 0).await;
    }
}

/// The URL of masters at these ports.
fn at(ports: &[u16]) -> String {
    let masters = addresses("127.0.0.1", ports.iter().copied());
    format!("redlock://{masters}")
}

/// The URL of masters that are not kept out for longer than the ttl.
fn short(masters: &Masters) -> String {
    format!("{}?longest-ttl={}ms", masters.url(), TTL.as_millis())
}

/// Acquires a lock after the masters were admitted.
async fn lock_in_time(client: &Client, name: &str) -> Guard {
    let mutex = client.mutex(name).unwrap();
    let mut guard = None;
    eventually_async(LONG, async || {
        match mutex.lock().await {
            Ok(locked) => guard = Some(locked),
            Err(error) => assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}"),
        }
        guard.is_some()
    })
    .await;
    guard.unwrap()
}

/// Waits until the store has confirmed a lease once more.
async fn renewed(guard: &Guard) {
    let before = guard.deadline();
    eventually_async(LONG, async || {
        assert!(!guard.state().is_lost(), "{:?}", guard.state());
        guard.deadline() > before
    })
    .await;
}

async fn two_clients(url: &str) -> [Client; 2] {
    [client_at(url, TTL).await, client_at(url, TTL).await]
}

/// Whether a master is admitted for a namespace.
fn is_admitted(server: &RedisServer, namespace: &str) -> bool {
    let admitted = server.cli(&["HGET", &format!("{namespace}:master"), "run"]);
    info(server, "replication", "master_replid") == Some(admitted)
}
