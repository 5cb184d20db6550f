//! A silent client that is alive keeps its locks, for `max_pause` at most.

use std::time::{Duration, Instant};

use leasehold::__private::wire::{Liveness, Registration, ToNode};
use rustix::process::Signal;

use crate::fixture::{Fixture, LONG, TTL};
use crate::peer::{Peer, registration};

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_its_main_thread_is_silent_for_that_reason() {
    let (fixture, _node) = Fixture::with_node().await;
    let actor = fixture.holder("lock", TTL).await;
    assert_eq!(actor.helper().request("end-main"), "ok");
    let reason = "its main thread has ended, others go on";
    Peer::observer(&fixture).wait_for(actor.client, |it| it.reason == reason);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_silent_for_too_long_loses_its_locks() {
    let ttl = Duration::from_secs(6);
    let max_pause = ttl * 2;
    let (fixture, _node) = Fixture::with_settings(|it| it.max_pause = max_pause).await;
    let mut actor = fixture.holder("lock", ttl).await;
    let start = Instant::now();
    actor.signal(Signal::STOP);
    fixture
        .assert_held_for(actor.client, "lock", ttl * 3 / 2)
        .await;
    fixture.wait_until_free("lock").await;
    let kept = start.elapsed();
    assert!(kept >= max_pause - ttl, "{kept:?}");
    actor.signal(Signal::CONT);
    actor.peer.send(&ToNode::Heartbeat);
    let status = actor.peer.status_of(actor.client).unwrap();
    assert_eq!(status.liveness, Liveness::Alive);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fixed_lease_is_not_renewed_and_is_released() {
    let (fixture, _node) = Fixture::with_node().await;
    let mut actor = fixture.holder("renewed", TTL).await;
    for (number, name, ttl) in [(2, "fixed", TTL / 5), (3, "long", LONG)] {
        fixture.acquire(actor.client, number, name, ttl).await;
        let fixed = Registration {
            keep_ms: Some(0),
            ..registration(number, name, ttl)
        };
        assert_eq!(actor.peer.register([fixed]), []);
    }
    actor.signal(Signal::STOP);
    fixture.wait_until_free("fixed").await;
    fixture.wait_for_renewal("renewed");
    let status = Peer::observer(&fixture).status_of(actor.client).unwrap();
    assert_eq!(status.liveness, Liveness::Silent);
    assert_eq!(status.renewed, ["renewed"]);
    // It is killed while it is stopped.
    actor.signal(Signal::KILL);
    fixture.wait_until_free("long").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn registrations_end_with_a_message_and_not_with_the_connection() {
    let (fixture, _node) = Fixture::with_node().await;
    let mut observer = Peer::observer(&fixture);
    let mut disconnected = fixture.holder("disconnected", LONG).await;
    disconnected.peer.disconnect();
    assert_eq!(observer.status_of(disconnected.client), None);
    let mut actor = fixture.holder("lock", TTL).await;
    for (number, name) in [(2, "unregistered"), (3, "long")] {
        fixture.acquire(actor.client, number, name, LONG).await;
        actor.register(number, name, LONG);
    }
    actor.connect(&fixture, |_| {});
    assert_eq!(observer.status_of(actor.client).unwrap().leases, 3);
    fixture.wait_for_renewal("lock");
    assert_eq!(actor.peer.change(vec![], vec![2]), []);
    assert_eq!(observer.status_of(actor.client).unwrap().leases, 2);
    disconnected.signal(Signal::KILL);
    actor.signal(Signal::KILL);
    fixture.wait_until_free("lock").await;
    fixture.wait_until_free("long").await;
    for (client, number, name) in [
        (actor.client, 2, "unregistered"),
        (disconnected.client, 1, "disconnected"),
    ] {
        assert!(fixture.is_held(client, number, name).await, "{name}");
    }
}
