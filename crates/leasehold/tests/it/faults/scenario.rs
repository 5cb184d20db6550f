//! A server, two clients that want one lock, and a proxy between one of them and the server.

use std::ops::Deref;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::clock::{BootClock, Clock};
use leasehold::{Cause, Client, ErrorKind, Instant, Mutex, Owner};
use leasehold_testkit::{Proxy, RedisOptions, RedisServer, eventually_async};
use tokio::task::JoinHandle;

use super::checker::{Checker, HeldLock, lost};
use crate::waiters::{SOON, soon};

/// Short, but a lease survives a stall of two seconds.
pub(super) const TTL: Duration = Duration::from_secs(9);

const NAME: &str = "job";

/// A server, two clients that want one lock, and a proxy between A and the server.
pub(super) struct Scenario {
    pub(super) server: RedisServer,
    pub(super) proxy: Proxy,
    pub(super) a: Client,
    pub(super) b: Client,
    pub(super) checker: Checker,
    ttl: Duration,
}

/// A task that waits for the lock. It returns when the lock was granted.
pub(super) struct Waiter(JoinHandle<(HeldLock, Instant)>);

impl Scenario {
    pub(super) async fn start() -> Self {
        Self::start_with(RedisServer::options(), TTL).await
    }

    pub(super) async fn start_with(options: RedisOptions, ttl: Duration) -> Self {
        let server = options.start();
        let proxy = Proxy::before(&server);
        Self {
            a: client(&proxy.url(), ttl).await,
            b: client(&server.url(), ttl).await,
            server,
            proxy,
            checker: Checker::default(),
            ttl,
        }
    }

    /// The word in requests that only renew: the hash of their script.
    pub(super) fn renewals(&self) -> String {
        let script = include_str!("../../../src/store/redis/scripts/renew.lua");
        self.server.cli(&["SCRIPT", "LOAD", script])
    }

    /// One more client, which reaches the server directly.
    pub(super) async fn another_client(&self) -> Client {
        client(&self.server.url(), self.ttl).await
    }

    /// The lock, for a client.
    pub(super) fn mutex(&self, client: &Client) -> Mutex {
        client.mutex(NAME).unwrap()
    }

    /// Acquires the lock for a client.
    pub(super) async fn acquire(&self, client: &Client) -> HeldLock {
        let guard = self.mutex(client).lock().await.unwrap();
        self.checker.granted(guard)
    }

    /// Acquires the lock for an owner.
    pub(super) async fn owned(&self) -> (Mutex, HeldLock) {
        let mutex = self.mutex(&self.a).owned_by(&Owner::new());
        let held = self.checker.granted(mutex.lock().await.unwrap());
        (mutex, held)
    }

    /// Lets a client wait for the lock.
    pub(super) fn wait(&self, client: &Client) -> Waiter {
        self.wait_for(self.mutex(client))
    }

    fn wait_for(&self, mutex: Mutex) -> Waiter {
        let checker = self.checker.clone();
        Waiter(tokio::spawn(async move {
            let guard = mutex.lock().await.unwrap();
            let at = BootClock.now();
            (checker.granted(guard), at)
        }))
    }

    /// Lets a client wait for the lock, and returns when it is the last in the queue.
    pub(super) async fn enqueue(&self, client: &Client) -> Waiter {
        self.enqueued(self.mutex(client)).await
    }

    /// The same for a lease with a longer ttl, so that it does not give up in the time of a grant that it misses.
    pub(super) async fn enqueue_patient(&self, client: &Client) -> Waiter {
        self.enqueued(self.mutex(client).ttl(self.ttl * 3).unwrap())
            .await
    }

    async fn enqueued(&self, mutex: Mutex) -> Waiter {
        let before = self.queue();
        let waiter = self.wait_for(mutex);
        eventually_async(SOON, async || self.queue() == before + 1).await;
        waiter
    }

    /// The length of the queue in the store.
    pub(super) fn queue(&self) -> usize {
        let length = self.server.cli(&["LLEN", &self.key(":queue")]);
        length.parse::<usize>().unwrap() / 2
    }

    /// The lease in the record and its hold count, unless that is 1. Empty if the lock is free.
    pub(super) fn record(&self) -> String {
        self.server.cli(&["GET", &self.key("")])
    }

    /// Checks that the record has this lease with so many holds.
    #[track_caller]
    pub(super) fn assert_recorded(&self, held: &HeldLock, count: u32) {
        assert_eq!(self.record(), record_of(held, count));
    }

    /// Waits until the record has this lease with so many holds.
    pub(super) async fn until_recorded(&self, held: &HeldLock, count: u32) {
        let wanted = record_of(held, count);
        eventually_async(SOON, async || self.record() == wanted).await;
    }

    /// The ttl of the record.
    pub(super) fn ttl_left(&self) -> Duration {
        let ttl = self.server.cli(&["PTTL", &self.key("")]);
        Duration::from_millis(ttl.parse().unwrap_or(0))
    }

    pub(super) fn key(&self, suffix: &str) -> String {
        key(NAME, suffix)
    }

    /// Checks the end of a lease that the store has forgotten and granted to another: the resource refuses the old
    /// holder, which notices its loss, and the new one keeps the lock.
    pub(super) async fn assert_superseded(&self, held: HeldLock, next: HeldLock) {
        assert!(next.write() && !held.write());
        held.until_lost(&[Cause::Deleted, Cause::TakenOver]).await;
        assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::Lost);
        next.assert_stays_held(TTL).await;
        self.assert_recorded(&next, 1);
        self.assert_ends(next).await;
    }

    /// Checks that a holder uses the resource and releases the lock, and that nothing remains.
    pub(super) async fn assert_ends(&self, held: HeldLock) {
        assert!(held.write());
        held.release().await.unwrap();
        assert_eq!(self.record(), "");
        self.assert_clean_end().await;
    }

    /// Checks that a client is granted the lock in little more than a ttl, and that no key of the lock remains after its
    /// release. The counter and a revocation remain for their time.
    pub(super) async fn assert_clean_end(&self) {
        let begun = BootClock.now();
        let (last, at) = self.wait(&self.b).granted().await;
        let took = at.since(begun);
        // The drift, a retry interval, and what a busy machine adds.
        let spare = self.ttl / 2 + Duration::from_millis(500);
        assert!(took < self.ttl + spare, "{took:?}");
        assert!(last.write());
        self.assert_recorded(&last, 1);
        last.release().await.unwrap();
        let keys = || {
            let all = self.server.cli(&["KEYS", "leasehold:{*"]);
            let kept = |key: &str| key.ends_with(":token") || key.ends_with(":revoked");
            let keys = all.lines().filter(|key| !kept(key));
            keys.map(str::to_owned).collect::<Vec<_>>()
        };
        eventually_async(SOON, async || keys().is_empty()).await;
    }
}

/// A scenario in which A holds the lock, and B waits for it.
pub(super) struct Contended {
    pub(super) scenario: Scenario,
    pub(super) held: HeldLock,
    pub(super) waiter: Waiter,
    /// The instant at which the holder is notified of the loss of its lease.
    notified: JoinHandle<Instant>,
}

impl Contended {
    pub(super) async fn start() -> Self {
        Self::start_with(RedisServer::options(), TTL).await
    }

    pub(super) async fn start_with(options: RedisOptions, ttl: Duration) -> Self {
        Self::new(Scenario::start_with(options, ttl).await).await
    }

    pub(super) async fn new(scenario: Scenario) -> Self {
        let held = scenario.acquire(&scenario.a).await;
        let lost = held.loss_signal();
        Self {
            notified: tokio::spawn(async move {
                lost.lost().await;
                BootClock.now()
            }),
            waiter: scenario.enqueue(&scenario.b).await,
            held,
            scenario,
        }
    }

    /// Waits until the lock is granted to the waiter. Returns the old and the new holder.
    pub(super) async fn granted(self) -> (Scenario, HeldLock, HeldLock) {
        (self.scenario, self.held, self.waiter.granted().await.0)
    }

    /// Waits until the lock passes to the waiter because the holder cannot reach the store. The holder was notified
    /// before, and the resource refuses it. Returns the old and the new holder.
    pub(super) async fn lost(self) -> (Scenario, HeldLock, HeldLock) {
        let (next, granted) = self.waiter.granted().await;
        assert!(soon(self.notified).await < granted, "notified too late");
        lost(self.held.state(), &[Cause::Unreachable]);
        assert!(next.write() && !self.held.write());
        (self.scenario, self.held, next)
    }

    /// Checks that the lease is still held, and that its release passes the lock on. Returns the new holder.
    pub(super) async fn release_to_waiter(self) -> (Scenario, HeldLock) {
        self.assert_recorded(&self.held, 1);
        assert!(self.waiter.is_waiting() && self.held.write());
        self.held.release().await.unwrap();
        (self.scenario, self.waiter.granted().await.0)
    }
}

impl Deref for Contended {
    type Target = Scenario;

    fn deref(&self) -> &Scenario {
        &self.scenario
    }
}

/// A client. On a busy machine its first reply may be too late.
pub(super) async fn client(url: &str, ttl: Duration) -> Client {
    let mut client = None;
    eventually_async(SOON, async || {
        client = Client::builder().ttl(ttl).connect(url).await.ok();
        client.is_some()
    })
    .await;
    client.unwrap()
}

/// The key of a lock's record, or another of its keys by its suffix.
pub(super) fn key(name: &str, suffix: &str) -> String {
    format!("leasehold:{{default:{name}}}{suffix}")
}

/// Acquires so many uncontended locks at once, each named by its number.
pub(super) async fn acquire_each(client: &Client, count: usize, ttl: Duration) -> Vec<HeldLock> {
    let acquiring = (0..count).map(async |number| {
        let mutex = client.mutex(number.to_string()).unwrap();
        let guard = mutex.ttl(ttl).unwrap().lock().await;
        Checker::default().granted(guard.unwrap())
    });
    join_all(acquiring).await
}

impl Waiter {
    /// Waits until the lock is granted. Returns when that was.
    #[track_caller]
    pub(super) fn granted(self) -> impl Future<Output = (HeldLock, Instant)> {
        soon(self.0)
    }

    /// Whether it still waits.
    pub(super) fn is_waiting(&self) -> bool {
        !self.0.is_finished()
    }
}

fn record_of(held: &HeldLock, count: u32) -> String {
    match count {
        1 => held.lease_id().to_string(),
        _ => format!("{} {count}", held.lease_id()),
    }
}
