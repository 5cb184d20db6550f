//! A silent client that is alive keeps its locks, for `max_pause` at most.

use std::time::{Duration, Instant};

use leasehold::watchdog::wire::Liveness;
use leasehold_testkit::{eventually, eventually_async};
use leasehold_watchdog::{Node, Settings};
use rustix::process::Signal;

use crate::actor::Actor;
use crate::fixture::{Fixture, LONG, SOON};
use crate::peer::Peer;

const TTL: Duration = Duration::from_millis(1_500);

fn wait_until_alive(fixture: &Fixture, client: u128) {
    let mut observer = Peer::observer(fixture);
    eventually(SOON, || {
        observer.status_of(client).unwrap().liveness == Liveness::Alive
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_client_keeps_its_locks_until_it_continues() {
    let (fixture, _node) = Fixture::with_node().await;
    let actor = fixture.holder("lock", TTL).await;
    actor.signal(Signal::STOP);
    fixture.assert_held_for(actor.client, "lock", TTL * 4).await;
    let status = Peer::observer(&fixture).status_of(actor.client).unwrap();
    assert_eq!(status.liveness, Liveness::Silent);
    assert_eq!(status.reason, "it is stopped by a signal");
    assert_eq!(status.renewed, ["lock"]);
    actor.signal(Signal::CONT);
    assert_eq!(actor.request("beats 20"), "ok");
    wait_until_alive(&fixture, actor.client);
    // It sends heartbeats and renews nothing, so its lease expires.
    fixture.wait_until_free("lock").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_living_client_without_a_connection_keeps_its_locks() {
    let (fixture, _node) = Fixture::with_node().await;
    let actor = fixture.holder("lock", TTL).await;
    actor.send("close");
    fixture.assert_held_for(actor.client, "lock", TTL * 3).await;
    actor.signal(Signal::KILL);
    fixture.wait_until_free("lock").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_silent_for_too_long_loses_its_locks() {
    let fixture = Fixture::new().await;
    let max_pause = TTL * 3;
    let settings = Settings {
        max_pause,
        ..fixture.settings()
    };
    let _node = Node::start(settings).await.unwrap();
    let actor = fixture.holder("lock", TTL).await;
    let start = Instant::now();
    actor.signal(Signal::STOP);
    fixture.assert_held_for(actor.client, "lock", TTL * 2).await;
    fixture.wait_until_free("lock").await;
    let kept = start.elapsed();
    assert!(kept >= max_pause - TTL, "{kept:?}");
    actor.signal(Signal::CONT);
    actor.send("heartbeat");
    wait_until_alive(&fixture, actor.client);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fixed_lease_is_not_renewed_and_is_released() {
    let (fixture, _node) = Fixture::with_node().await;
    let actor = fixture.holder("renewed", TTL).await;
    for (number, name, ttl) in [(2, "fixed", TTL), (3, "long", LONG)] {
        fixture.acquire(actor.client, number, name, ttl).await;
        actor.register_until(number, name, ttl, "0");
    }
    actor.signal(Signal::STOP);
    fixture.wait_until_free("fixed").await;
    fixture
        .assert_held_for(actor.client, "renewed", TTL * 2)
        .await;
    actor.signal(Signal::KILL);
    fixture.wait_until_free("long").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reconnects_keeps_its_registrations() {
    let (fixture, _node) = Fixture::with_node().await;
    let actor = fixture.holder("lock", TTL).await;
    for (number, name) in [(2, "unregistered"), (3, "long")] {
        fixture.acquire(actor.client, number, name, LONG).await;
        actor.register(number, name, LONG);
    }
    actor.connect(&fixture, 1);
    let mut observer = Peer::observer(&fixture);
    assert_eq!(observer.status_of(actor.client).unwrap().leases, 3);
    fixture.assert_held_for(actor.client, "lock", TTL * 2).await;
    actor.request("unregister 2");
    assert_eq!(observer.status_of(actor.client).unwrap().leases, 2);
    actor.signal(Signal::KILL);
    fixture.wait_until_free("lock").await;
    fixture.wait_until_free("long").await;
    let held = fixture.held(actor.client, 2, "unregistered").await;
    assert!(held.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_are_retried_until_a_stuck_store_replies() {
    let (fixture, _node) = Fixture::with_node().await;
    let ttl = Duration::from_secs(20);
    let actor = Actor::client(&fixture);
    fixture.acquire(actor.client, 1, "lock", ttl).await;
    let reply = actor.request(&format!("register 1 lock {} 100 -", ttl.as_millis()));
    assert!(reply.ends_with("refused: [] }"), "{reply}");
    actor.signal(Signal::STOP);
    let renewed = async || fixture.held(actor.client, 1, "lock").await > Some(ttl - ttl / 10);
    eventually_async(SOON, renewed).await;
    fixture.redis.stop();
    let mut observer = Peer::observer(&fixture);
    // No renewal is confirmed any more.
    let mut before = observer.renewed_until(actor.client, 1);
    eventually(SOON, || {
        let now = observer.renewed_until(actor.client, 1);
        std::thread::sleep(Duration::from_millis(500));
        std::mem::replace(&mut before, now) == now
    });
    fixture.redis.cont();
    eventually(SOON, || observer.renewed_until(actor.client, 1) != before);
    assert!(fixture.held(actor.client, 1, "lock").await.is_some());
}
