//! The store over many masters, real ones.

mod admission;
mod clocks;
mod contended;
mod far;
mod forgotten;
mod kept_out;
mod late;
mod load;
mod lost;
mod majority;
mod refused;

use std::time::{Duration, Instant};

use leasehold::{Client, ErrorKind, Guard, State};
use leasehold_testkit::{Masters, Proxy, RedisServer, eventually_async};

use super::*;

/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// Not so short that a busy machine lets it end, and so much shorter than [`LONG`].
const TTL: Duration = Duration::from_secs(6);

/// The record of a lock of a client with the usual namespace and tenant.
fn record(name: &str) -> String {
    format!("leasehold:{{default:{name}}}")
}

/// How many masters have a record of a lock, by their own word.
fn records(masters: &[&RedisServer], name: &str) -> usize {
    let has = |server: &&&RedisServer| server.cli(&["EXISTS", &record(name)]) == "1";
    masters.iter().filter(has).count()
}

fn all(masters: &Masters) -> Vec<&RedisServer> {
    masters.servers().iter().collect()
}

/// Three or five masters, each behind a proxy.
struct Far {
    masters: Masters,
    proxies: Vec<Proxy>,
}

impl Far {
    fn start(count: usize) -> Self {
        let masters = Masters::aged(count);
        let proxies = masters.servers().iter().map(Proxy::before).collect();
        Self { masters, proxies }
    }

    fn url(&self) -> String {
        let host = |proxy: &Proxy| {
            let url = proxy.url();
            let host = url.trim_start_matches("redis://");
            host.split('/').next().unwrap().to_owned()
        };
        let hosts: Vec<_> = self.proxies.iter().map(host).collect();
        format!("redlock://{}", hosts.join(","))
    }

    /// Nobody has a record of it any more, long before it would end by itself.
    async fn is_gone(&self, name: &str) {
        eventually_async(LONG, async || records(&all(&self.masters), name) == 0).await;
    }
}

/// The URL of masters that are not kept out for longer than the ttl.
fn short(masters: &Masters) -> String {
    format!("{}?longest-ttl={}ms", masters.url(), TTL.as_millis())
}

async fn client(url: &str, ttl: Duration) -> Client {
    Client::builder().ttl(ttl).connect(url).await.unwrap()
}

async fn lock(client: &Client, name: &str) -> Guard {
    let mutex = client.mutex(name).unwrap();
    let locked = tokio::time::timeout(LONG, mutex.lock());
    locked.await.expect("the lock in time").unwrap()
}

/// The same where the masters are to be admitted first.
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

fn is_held(guard: &Guard) -> bool {
    matches!(guard.state(), State::Held { .. })
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

/// The median of what it takes to take a free lock and give it back, so often.
async fn median_of(client: &Client, name: &str, times: usize) -> Duration {
    let mutex = client.mutex(name).unwrap();
    let mut took = Vec::new();
    for _ in 0..times {
        let begun = Instant::now();
        let guard = mutex.lock().await.unwrap();
        took.push(begun.elapsed());
        guard.release().await.unwrap();
    }
    took.sort_unstable();
    took[times / 2]
}
