//! The server immediately notifies a holder of changes of its record by other clients.

use std::time::Instant;

use leasehold::__private::store::Event;

use super::*;
use crate::store_ext::StoreExt as _;

async fn holder(server: &RedisServer) -> StoreClient {
    let holder = StoreClient::connect(&server.url(), 1).await;
    holder.acquire("a", 1).await;
    holder
}

async fn held() -> (RedisServer, StoreClient) {
    let server = RedisServer::start();
    let holder = holder(&server).await;
    (server, holder)
}

#[tokio::test(flavor = "multi_thread")]
async fn any_change_of_a_record_is_notified() {
    let (server, a) = held().await;
    for (number, command) in (2..).zip([
        &["DEL", RECORD][..],
        &["UNLINK", RECORD],
        &["SET", RECORD, "x"],
        &["APPEND", RECORD, " 2"],
        &["RENAME", RECORD, "elsewhere"],
        &["PERSIST", RECORD],
        &["PEXPIRE", RECORD, "1"],
    ]) {
        until_tracked(&server, 1).await;
        server.cli(command);
        a.until_changed("a").await;
        server.cli(&["DEL", RECORD]);
        a.acquire("a", number).await;
    }
    // Also by its own expiry. `until_tracked` changes this lock: a reading behind its expiry would leave its key tracked.
    let short = lasting(acquire("works", 1), Duration::from_millis(100));
    granted(&*a.store, a.own(short)).await;
    a.until_changed("works").await;
    // And by eviction: the server makes room before the next command that takes some.
    until_tracked(&server, 1).await;
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(server.try_cli(&["SET", "x", "1"]).unwrap_or_default(), "");
    a.until_changed("a").await;
    assert_eq!(server.cli(&["EXISTS", RECORD]), "0");
}

/// Each operation that leaves a holder its lock has the key tracked.
#[tokio::test(flavor = "multi_thread")]
async fn after_each_operation_of_a_holder() {
    let (server, a) = held().await;
    for (request, outcome) in [
        (renew("a", 1), Outcome::Kept),
        (enter("a", 1, 2), Outcome::Kept),
        (renew("a", 1), Outcome::Kept),
    ] {
        assert_eq!(a.apply(request).await, outcome);
        until_tracked(&server, 1).await;
        server.cli(&["PEXPIRE", RECORD, "60000"]);
        a.until_changed("a").await;
    }
    a.acquire("a", 1).await;
    server.cli(&["DEL", RECORD]);
    a.until_changed("a").await;
    // Also after a grant by a message.
    let b = StoreClient::connect(&server.url(), 2).await;
    a.acquire("a", 2).await;
    // Not behind the release, for the sake of the count.
    until_tracked(&server, 1).await;
    b.wait("a", 1).await;
    a.release("a", 2).await;
    b.granted("a", 1).await;
    until_tracked(&server, 1).await;
    server.cli(&["DEL", RECORD]);
    b.until_changed("a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_taken_over() {
    let server = RedisServer::options().clock_shim().start();
    let a = holder(&server).await;
    let b = StoreClient::connect(&server.url(), 2).await;
    // The lease has ended by the clock of the server alone.
    server.step_clock(40_000);
    b.acquire("a", 1).await;
    a.until_changed("a").await;
    let revoked = Outcome::Revoked(vec![b.lease(1)]);
    assert_eq!(a.apply(revoke("a")).await, revoked);
    b.until_changed("a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_is_deleted() {
    let (server, a) = held().await;
    for command in [&["FLUSHALL"][..], &["FLUSHDB", "ASYNC"]] {
        server.cli(command);
        a.until_interrupted().await;
    }
}

/// It drops keys to track others, and does not always report that. Then a renewal shows the loss.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_server_that_can_track_one_key_only() {
    let server = RedisServer::start();
    server.cli(&["CONFIG", "SET", "tracking-table-max-keys", "1"]);
    let a = holder(&server).await;
    for name in ["b", "c"] {
        a.acquire(name, 1).await;
    }
    for _ in 0..3 {
        for name in ["a", "b", "c"] {
            assert_eq!(a.apply(renew(name, 1)).await, Outcome::Kept);
        }
    }
    server.cli(&["DEL", RECORD, "app:{t:b}", "app:{t:c}"]);
    let mut events = Vec::new();
    eventually_async(SOON, async || {
        events.extend(a.events());
        events.contains(&Event::Changed(key("c")))
    })
    .await;
    let hint = |event: &Event| matches!(event, Event::Changed(_));
    assert!(events.iter().all(hint), "{events:?}");
    for name in ["a", "b", "c"] {
        assert_eq!(a.apply(renew(name, 1)).await, FREE);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn own_changes_are_not_notified() {
    let (server, a) = held().await;
    for number in 2..5 {
        for request in [
            renew("a", number - 1),
            enter("a", number - 1, 2),
            acquire("a", number - 1),
        ] {
            until_tracked(&server, 1).await;
            a.apply(request).await;
        }
        until_tracked(&server, 1).await;
        a.release("a", number - 1).await;
        assert_eq!(tracked(&server), 0);
        a.acquire("a", number).await;
    }
    until_tracked(&server, 1).await;
    a.release("a", 4).await;
    // Nor changes of a lock that it has released.
    let b = StoreClient::connect(&server.url(), 2).await;
    b.acquire("a", 1).await;
    b.release("a", 1).await;
    a.settle().await;
    assert_eq!(a.events(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_any_size_is_tracked() {
    let (server, a) = held().await;
    let batch: Vec<_> = (0..600)
        .map(|n| a.own(acquire(&format!("{n:03}"), n)))
        .collect();
    assert_eq!(a.store.apply(batch).await.len(), 600);
    // Its records and nothing else: other keys that the script reads are not tracked.
    until_tracked(&server, 601).await;
    for name in ["000", "255", "256", "599"] {
        server.cli(&["DEL", &format!("app:{{t:{name}}}")]);
        a.until_changed(name).await;
    }
    let releases = (0..600).map(|n| a.own(release(&format!("{n:03}"), n)));
    a.store.apply(releases.collect()).await;
    a.settle().await;
    assert_eq!(tracked(&server), 1);
}

/// A lock that is held for a moment is not worth the requests.
#[tokio::test(flavor = "multi_thread")]
async fn short_locks_are_not_tracked() {
    let (server, a) = held().await;
    until_tracked(&server, 1).await;
    server.cli(&["CONFIG", "RESETSTAT"]);
    // On a busy machine a lock is held for longer than a moment.
    let mut long = 0;
    for number in 0..500 {
        a.acquire("short", number).await;
        let acquired = Instant::now();
        a.release("short", number).await;
        long += u64::from(acquired.elapsed() > Duration::from_millis(5));
    }
    let requests = calls(&server, "client|caching");
    assert!(requests < 50 + long, "{requests} for {long} long ones");
}

/// A loss before the key is tracked is found when tracking begins.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_lost_at_once() {
    let (server, a) = held().await;
    let b = open(&server.url()).await;
    for number in 2..20 {
        let batch = vec![revoke("a"), acquire("a", number)];
        assert_eq!(b.apply(batch).await.len(), 2);
        a.until_changed("a").await;
        applied(&*b, release("a", number)).await;
        a.acquire("a", number).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn inspections_and_listings_are_not_tracked() {
    let (server, a) = held().await;
    let others = open(&server.url()).await;
    for number in 0..100 {
        granted(&*others, acquire(&format!("{number}"), number)).await;
    }
    until_tracked(&server, 1).await;
    assert_eq!(a.store.held(&space()).await.unwrap().len(), 101);
    assert!(a.store.inspect(&key("7")).await.unwrap().is_some());
    assert_eq!(tracked(&server), 1);
}

/// A late reply ends the connection: notifications on it may be lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_reply_is_an_interruption() {
    let server = RedisServer::start();
    let options = OpenOptions::default().response_timeout(Duration::from_secs(2));
    let store = open_with(&server.url(), options).await;
    let a = StoreClient::on(&store, 1);
    a.acquire("a", 1).await;
    server.cli(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    unknown(&*store, a.own(renew("a", 1))).await;
    a.until_interrupted().await;
    server.cli(&["CLIENT", "UNPAUSE"]);
    assert_eq!(a.apply(renew("a", 1)).await, Outcome::Kept);
    assert_eq!(a.events(), []);
    server.cli(&["DEL", RECORD]);
    a.until_changed("a").await;
}
