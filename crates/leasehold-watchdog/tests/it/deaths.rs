//! The locks of a client that dies are free immediately, and those of a living client stay.
//!
//! The fault campaign kills clients in more ways, and measures the time until the grant to the next waiter.

use std::time::{Duration, Instant};

use leasehold::__private::wire::Liveness;
use leasehold_testkit::{RedisServer, eventually};
use leasehold_watchdog::StoreSettings;
use rustix::process::Signal;

use crate::actor::Actor;
use crate::fixture::{Fixture, LONG, SOON, TTL};
use crate::peer::{Peer, registration};

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_killed_right_after_a_registration_frees_its_locks() {
    let (fixture, _node) = Fixture::with_node().await;
    for round in 0..20 {
        let name = format!("lock/{round}");
        let actor = Actor::client(&fixture);
        fixture.acquire(actor.client, 1, &name, LONG).await;
        actor.register_and_die(registration(1, &name, LONG));
        fixture.wait_until_free(&name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_killed_after_too_long_a_silence_frees_its_locks() {
    let max_pause = Duration::from_millis(200);
    let (fixture, _node) = Fixture::with_settings(|it| it.max_pause = max_pause).await;
    let actor = fixture.holder("lock", LONG).await;
    actor.signal(Signal::STOP);
    let abandoned = Liveness::Abandoned;
    Peer::observer(&fixture).wait_for(actor.client, |it| it.liveness == abandoned);
    actor.signal(Signal::KILL);
    fixture.wait_until_free("lock").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_program_with_another_nonce_is_not_another_program() {
    let (fixture, _node) = Fixture::with_node().await;
    let mut actor = fixture.holder("lock", TTL).await;
    let before = actor.client;
    actor.helper().send("close");
    Peer::observer(&fixture).wait_for(before, |it| !it.connected);
    // As two copies of the library in one process would.
    actor.client = fastrand::u128(..);
    actor.connect(&fixture, |info| info.process_nonce = [2; 16]);
    let status = Peer::observer(&fixture).status_of(before).unwrap();
    assert_eq!(status.processes, 1);
    fixture.wait_for_renewal("lock");
    actor.signal(Signal::KILL);
    fixture.wait_until_free("lock").await;
}

/// How long the release at one store takes while another one is stuck.
async fn release_beside_a_stuck_store() -> Duration {
    let other = RedisServer::start();
    let store = StoreSettings::new(other.url());
    let (fixture, _node) = Fixture::with_settings(|settings| settings.stores.push(store)).await;
    let record = "test:{default:lock}";
    let mut stuck = Actor::client_with(&fixture, 5, |info| info.store = other.url());
    let lease = format!("{}:1", crate::peer::client_id(5));
    other.cli(&["SET", record, &lease]);
    stuck.register(1, "lock", LONG);
    let actor = fixture.holder("lock", LONG).await;
    other.stop();
    stuck.signal(Signal::KILL);
    Peer::observer(&fixture).wait_for(5, |it| it.processes == 0);
    let start = Instant::now();
    actor.signal(Signal::KILL);
    fixture.wait_until_free("lock").await;
    let took = start.elapsed();
    // The release is repeated until the store replies.
    other.cont();
    eventually(SOON, || other.cli(&["EXISTS", record]) == "0");
    took
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_store_does_not_delay_another() {
    let mut times = Vec::new();
    // Behind the other store, it would take two seconds every time.
    while times
        .last()
        .is_none_or(|took| *took > Duration::from_millis(1_800))
    {
        times.push(release_beside_a_stuck_store().await);
        assert!(times.len() < 9, "{times:?}");
    }
}
