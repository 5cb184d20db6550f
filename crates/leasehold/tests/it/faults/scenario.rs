//! A server, two clients that want one lock, and a proxy between one of them and the server.

use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::{Client, Instant, Mutex};
use leasehold_testkit::{Proxy, RedisOptions, RedisServer, eventually_async};
use tokio::task::JoinHandle;

use super::judge::{Held, Judge};
use crate::waiters::{SOON, soon};

/// Short, and yet no busy machine misses a renewal.
pub(super) const TTL: Duration = Duration::from_secs(3);

const NAME: &str = "job";

/// A server, two clients that want one lock, and a proxy between A and the server.
pub(super) struct Scenario {
    pub(super) server: RedisServer,
    pub(super) proxy: Proxy,
    pub(super) a: Client,
    pub(super) b: Client,
    pub(super) judge: Judge,
    ttl: Duration,
}

/// A task that wants the lock; it answers when it had it.
pub(super) struct Waiter(JoinHandle<(Held, Instant)>);

impl Scenario {
    pub(super) async fn set() -> Self {
        Self::with(RedisServer::options(), TTL).await
    }

    pub(super) async fn with(options: RedisOptions, ttl: Duration) -> Self {
        let server = options.start();
        let proxy = Proxy::before(&server);
        Self {
            a: client(&proxy.url(), ttl).await,
            b: client(&server.url(), ttl).await,
            server,
            proxy,
            judge: Judge::default(),
            ttl,
        }
    }

    /// The word by which the proxy knows requests that renew and nothing else: their script's hash.
    pub(super) fn renewals(&self) -> String {
        let script = include_str!("../../../src/store/redis/scripts/renew.lua");
        self.server.cli(&["SCRIPT", "LOAD", script])
    }

    /// One more client, which comes to the server directly.
    pub(super) async fn another(&self) -> Client {
        client(&self.server.url(), self.ttl).await
    }

    /// The lock, for a client.
    pub(super) fn lock(&self, client: &Client) -> Mutex {
        client.mutex(NAME).unwrap()
    }

    /// Takes the lock for a client.
    pub(super) async fn holds(&self, client: &Client) -> Held {
        let guard = self.lock(client).lock().await.unwrap();
        self.judge.granted(guard)
    }

    /// Lets a client wait for the lock.
    pub(super) fn wants(&self, client: &Client) -> Waiter {
        let (mutex, judge) = (self.lock(client), self.judge.clone());
        Waiter(tokio::spawn(async move {
            let guard = mutex.lock().await.unwrap();
            let at = BootClock.now();
            (judge.granted(guard), at)
        }))
    }

    /// Lets a client wait for the lock, and waits until it is the last in the queue.
    pub(super) async fn queues(&self, client: &Client) -> Waiter {
        let before = self.queue();
        let waiter = self.wants(client);
        eventually_async(SOON, async || self.queue() == before + 1).await;
        waiter
    }

    /// How many wait in the store.
    pub(super) fn queue(&self) -> usize {
        let length = self.server.cli(&["LLEN", &self.key(":queue")]);
        length.parse::<usize>().unwrap() / 2
    }

    /// The lease that has the lock in the store and its hold count, one below the other. Nothing if
    /// it is free.
    pub(super) fn record(&self) -> String {
        self.server.cli(&["HGETALL", &self.key("")])
    }

    /// Checks that the store has this lease with so many holds.
    #[track_caller]
    pub(super) fn is_recorded(&self, held: &Held, count: u32) {
        assert_eq!(self.record(), format!("{}\n{count}", held.lease_id()));
    }

    /// Waits until the store has this lease with so many holds.
    pub(super) async fn until_recorded(&self, held: &Held, count: u32) {
        let wanted = format!("{}\n{count}", held.lease_id());
        eventually_async(SOON, async || self.record() == wanted).await;
    }

    /// How long the record stays if nothing happens.
    pub(super) fn left(&self) -> Duration {
        let left = self.server.cli(&["PTTL", &self.key("")]);
        Duration::from_millis(left.parse().unwrap_or(0))
    }

    pub(super) fn key(&self, suffix: &str) -> String {
        key(NAME, suffix)
    }

    /// Checks that a client gets the lock by itself in little more than a ttl, that it works as ever,
    /// and that nothing is left of anybody after it.
    pub(super) async fn ends_clean(&self) {
        let begun = BootClock.now();
        let (last, at) = self.wants(&self.b).served().await;
        let took = at.since(begun);
        // The drift, the pause of who asks again, and what a busy machine adds.
        let spare = self.ttl / 2 + Duration::from_millis(500);
        assert!(took < self.ttl + spare, "{took:?}");
        assert!(last.writes());
        self.is_recorded(&last, 1);
        last.release().await.unwrap();
        let left = || {
            let keys = self.server.cli(&["KEYS", "leasehold:{*"]);
            let left = keys.lines().filter(|key| !key.ends_with(":token"));
            left.map(str::to_owned).collect::<Vec<_>>()
        };
        eventually_async(SOON, async || left().is_empty()).await;
    }
}

/// A client. On a busy machine it may not have its first answer in time.
pub(super) async fn client(url: &str, ttl: Duration) -> Client {
    let mut client = None;
    eventually_async(SOON, async || {
        client = Client::builder().ttl(ttl).connect(url).await.ok();
        client.is_some()
    })
    .await;
    client.unwrap()
}

/// The key of a lock's record, or with a suffix another of its keys.
pub(super) fn key(name: &str, suffix: &str) -> String {
    format!("leasehold:{{default:{name}}}{suffix}")
}

/// Takes so many locks at once that nobody else wants, each named by its number.
pub(super) async fn holds_each(client: &Client, count: usize, ttl: Duration) -> Vec<Held> {
    let asked: Vec<_> = (0..count)
        .map(|number| {
            let mutex = client.mutex(number.to_string()).unwrap();
            let mutex = mutex.ttl(ttl).unwrap();
            tokio::spawn(async move { mutex.lock().await.unwrap() })
        })
        .collect();
    let mut all = Vec::new();
    for guard in asked {
        all.push(Judge::default().granted(soon(guard).await));
    }
    all
}

impl Waiter {
    /// Waits until it has the lock, and when that was.
    #[track_caller]
    pub(super) fn served(self) -> impl Future<Output = (Held, Instant)> {
        soon(self.0)
    }

    /// Whether it still waits.
    pub(super) fn waits(&self) -> bool {
        !self.0.is_finished()
    }
}
