//! The server tells a holder at once that its record was changed by somebody else.

use leasehold::store::Event;
use leasehold_testkit::{RedisServer, eventually_async};

use super::event_log::{Asker, lasting, watched};
use super::*;

const RECORD: &str = "app:{t:a}";

async fn holder(server: &RedisServer) -> Asker {
    let holder = Asker::connect(&server.url(), 1).await;
    holder.take("a", 1).await;
    holder
}

fn changed() -> Event {
    Event::Changed(key("a"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_deleted_or_overwritten() {
    let server = RedisServer::start();
    let a = holder(&server).await;
    for (number, command) in (2..).zip([
        &["DEL", RECORD][..],
        &["UNLINK", RECORD],
        &["SET", RECORD, "x"],
        &["HSET", RECORD, "somebody", "1"],
        &["RENAME", RECORD, "elsewhere"],
        &["PERSIST", RECORD],
    ]) {
        eventually_async(SOON, async || watched(&server) == 1).await;
        server.cli(command);
        a.hears(&changed()).await;
        server.cli(&["DEL", RECORD]);
        a.take("a", number).await;
    }
}

/// Each operation of a holder that leaves it the lock makes the server watch.
#[tokio::test(flavor = "multi_thread")]
async fn after_each_operation_of_a_holder() {
    let server = RedisServer::start();
    let a = holder(&server).await;
    for (request, told) in [
        (renew("a", 1), Outcome::Renewed),
        (release("a", 1, 2), Outcome::Released { count: 2 }),
        (renew("a", 1), Outcome::Renewed),
    ] {
        assert_eq!(a.ask(request).await, told);
        eventually_async(SOON, async || watched(&server) == 1).await;
        server.cli(&["PEXPIRE", RECORD, "60000"]);
        a.hears(&changed()).await;
    }
    a.take("a", 1).await;
    server.cli(&["DEL", RECORD]);
    a.hears(&changed()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_expires() {
    let server = RedisServer::start();
    let a = holder(&server).await;
    server.cli(&["PEXPIRE", RECORD, "1"]);
    a.hears(&changed()).await;
    // By itself, too.
    let granted = a.ask(lasting(acquire("b", 1), 100)).await;
    assert!(matches!(granted, Outcome::Granted { .. }));
    a.hears(&Event::Changed(key("b"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_evicted() {
    let server = RedisServer::start();
    let a = holder(&server).await;
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    // The server makes room before the next command that takes some.
    assert_eq!(server.try_cli(&["SET", "x", "1"]).unwrap_or_default(), "");
    a.hears(&changed()).await;
    assert_eq!(server.cli(&["EXISTS", RECORD]), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_taken_over() {
    let server = RedisServer::options().clock_shim().start();
    let a = holder(&server).await;
    let b = Asker::connect(&server.url(), 2).await;
    // For the server the lease is over. Nothing tells it that the holder's clock does not agree.
    server.step_clock(40_000);
    b.take("a", 1).await;
    a.hears(&changed()).await;
    let cut_off = Some(b.lease(1));
    assert_eq!(a.ask(revoke("a")).await, Outcome::Revoked { cut_off });
    b.hears(&changed()).await;
}

/// The server tells nobody of what came over its own connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_revoked_by_a_neighbour() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let [a, b] = [1, 2].map(|client| Asker::on(&store, client));
    a.take("a", 1).await;
    let cut_off = Some(a.lease(1));
    assert_eq!(b.ask(revoke("a")).await, Outcome::Revoked { cut_off });
    a.hears(&changed()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_is_deleted() {
    let server = RedisServer::start();
    let a = holder(&server).await;
    for command in [&["FLUSHALL"][..], &["FLUSHDB", "ASYNC"]] {
        server.cli(command);
        a.hears_of_interruption().await;
    }
}

/// It forgets keys to watch others, and does not always say so. Then a renewal tells.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_server_that_can_watch_one_key_only() {
    let server = RedisServer::start();
    server.cli(&["CONFIG", "SET", "tracking-table-max-keys", "1"]);
    let a = holder(&server).await;
    for name in ["b", "c"] {
        a.take(name, 1).await;
    }
    for _ in 0..3 {
        for name in ["a", "b", "c"] {
            assert_eq!(a.ask(renew(name, 1)).await, Outcome::Renewed);
        }
    }
    server.cli(&["DEL", RECORD, "app:{t:b}", "app:{t:c}"]);
    let mut told = Vec::new();
    eventually_async(SOON, async || {
        told.extend(a.event_log.take());
        told.contains(&Event::Changed(key("c")))
    })
    .await;
    assert!(
        told.iter().all(|event| matches!(event, Event::Changed(_))),
        "{told:?}"
    );
    for name in ["a", "b", "c"] {
        assert_eq!(a.ask(renew(name, 1)).await, Outcome::Lost(Loss::Gone));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_does_oneself_is_no_news() {
    let server = RedisServer::start();
    let a = holder(&server).await;
    for number in 2..5 {
        for request in [
            renew("a", number - 1),
            release("a", number - 1, 2),
            acquire("a", number - 1),
        ] {
            eventually_async(SOON, async || watched(&server) == 1).await;
            a.ask(request).await;
        }
        eventually_async(SOON, async || watched(&server) == 1).await;
        a.release("a", number - 1).await;
        assert_eq!(watched(&server), 0);
        a.take("a", number).await;
    }
    eventually_async(SOON, async || watched(&server) == 1).await;
    a.release("a", 4).await;
    // Nor what others do with a lock that one had.
    let b = Asker::connect(&server.url(), 2).await;
    b.take("a", 1).await;
    b.release("a", 1).await;
    a.settle().await;
    assert_eq!(a.event_log.take(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_any_size_is_watched() {
    let server = RedisServer::start();
    let a = holder(&server).await;
    let batch: Vec<_> = (0..600)
        .map(|n| a.own(acquire(&format!("{n:03}"), n)))
        .collect();
    assert_eq!(a.store.apply(batch).await.len(), 600);
    // Its records and nothing else: what the script read is not watched.
    eventually_async(SOON, async || watched(&server) == 601).await;
    for name in ["000", "255", "256", "599"] {
        server.cli(&["DEL", &format!("app:{{t:{name}}}")]);
        a.hears(&Event::Changed(key(name))).await;
    }
    let releases = (0..600).map(|n| a.own(release(&format!("{n:03}"), n, 0)));
    a.store.apply(releases.collect()).await;
    a.settle().await;
    assert_eq!(watched(&server), 1);
}

/// A lock that is held for a moment only is not worth it.
#[tokio::test(flavor = "multi_thread")]
async fn short_locks_are_not_watched() {
    let server = RedisServer::start();
    let a = holder(&server).await;
    eventually_async(SOON, async || watched(&server) == 1).await;
    server.cli(&["CONFIG", "RESETSTAT"]);
    for number in 0..500 {
        a.take("short", number).await;
        a.release("short", number).await;
    }
    let stats = server.cli(&["INFO", "commandstats"]);
    let asked = stats.split("cmdstat_client|caching:calls=").nth(1);
    let asked = asked.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap());
    assert!(asked < 250_u32, "{stats}");
}

/// Whoever is granted a lock by a message is told of its loss as everybody else.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_granted_by_a_message() {
    let server = RedisServer::start();
    let a = holder(&server).await;
    let b = Asker::connect(&server.url(), 2).await;
    b.wait("a", 1).await;
    a.release("a", 1).await;
    b.granted("a", 1).await;
    eventually_async(SOON, async || watched(&server) == 1).await;
    server.cli(&["DEL", RECORD]);
    b.hears(&changed()).await;
}

/// A loss before the server watches is found when it begins to.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_lost_at_once() {
    let server = RedisServer::start();
    let a = holder(&server).await;
    let b = open(&server.url()).await;
    for number in 2..20 {
        let batch = vec![revoke("a"), acquire("a", number)];
        assert_eq!(b.apply(batch).await.len(), 2);
        a.hears(&changed()).await;
        applied(&*b, release("a", number, 0)).await;
        a.take("a", number).await;
    }
}

/// People look at everything; the server need not remember that for them.
#[tokio::test(flavor = "multi_thread")]
async fn looking_makes_the_server_watch_nothing() {
    let server = RedisServer::start();
    let a = holder(&server).await;
    let others = open(&server.url()).await;
    for number in 0..100 {
        granted(&*others, acquire(&format!("{number}"), number)).await;
    }
    eventually_async(SOON, async || watched(&server) == 1).await;
    assert_eq!(a.store.list(&space()).await.unwrap().len(), 101);
    assert!(a.store.inspect(&key("7")).await.unwrap().is_some());
    assert_eq!(watched(&server), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_lost_while_idle_is_told_once() {
    let server = RedisServer::start();
    let a = holder(&server).await;
    server.cli(&["CLIENT", "KILL", "USER", "default"]);
    a.hears_of_interruption().await;
    assert_eq!(a.ask(renew("a", 1)).await, Outcome::Renewed);
    assert_eq!(a.event_log.take(), []);
    // The new connection watches, too.
    server.cli(&["DEL", RECORD]);
    a.hears(&changed()).await;
}

/// A server that answers too late is as one that is gone: whatever it would have told is lost.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_too_late_is_an_interruption() {
    let server = RedisServer::start();
    let options = OpenOptions::default().response_timeout(std::time::Duration::from_millis(100));
    let store = store::open(&server.url(), &options).await.unwrap();
    let a = Asker::on(&store, 1);
    a.take("a", 1).await;
    server.cli(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let reply = send(&*store, a.own(renew("a", 1))).await;
    assert!(matches!(reply, Reply::Unknown(_)), "{reply:?}");
    a.hears_of_interruption().await;
    server.cli(&["CLIENT", "UNPAUSE"]);
    assert_eq!(a.ask(renew("a", 1)).await, Outcome::Renewed);
    assert_eq!(a.event_log.take(), []);
    server.cli(&["DEL", RECORD]);
    a.hears(&changed()).await;
}
