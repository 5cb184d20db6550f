//! The locks of a client that dies are free at once, and those of a living client stay.

use std::time::{Duration, Instant};

use leasehold_testkit::helper::process_state;
use leasehold_testkit::{RedisServer, eventually};
use leasehold_watchdog::{Node, StoreSettings};
use rustix::process::{Pid, Signal, kill_process};

use crate::actor::{Actor, Sleeper};
use crate::fixture::{Fixture, LONG, SOON};
use crate::peer::Peer;

const TTL: Duration = Duration::from_millis(1_200);

/// Waits until the node sees so many living processes of a client.
fn wait_for_processes(fixture: &Fixture, client: u128, processes: u32) {
    let mut observer = Peer::observer(fixture);
    eventually(SOON, || {
        observer.status_of(client).unwrap().processes == processes
    });
}

fn wait_until_disconnected(fixture: &Fixture, client: u128) {
    let mut observer = Peer::observer(fixture);
    eventually(SOON, || !observer.status_of(client).unwrap().connected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_client_frees_its_locks_at_once() {
    let (fixture, _node) = Fixture::with_node().await;
    let mut times = Vec::new();
    for round in 0..20 {
        let name = format!("lock/{round}");
        // Its parent does not wait for it before its lock is free: it is a zombie.
        let actor = fixture.holder(&name, LONG).await;
        let start = Instant::now();
        actor.signal(Signal::KILL);
        fixture.wait_until_free(&name).await;
        times.push(start.elapsed());
        assert_eq!(actor.state(), Some('Z'));
    }
    times.sort();
    let (median, worst) = (times[10], times[19]);
    println!("kill -9 to free: median {median:?}, worst {worst:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_killed_right_after_a_registration_frees_its_locks() {
    let (fixture, _node) = Fixture::with_node().await;
    for round in 0..20 {
        let name = format!("lock/{round}");
        let actor = Actor::client(&fixture);
        fixture.acquire(actor.client, 1, &name, LONG).await;
        actor.send(&format!("register-and-die 1 {name} 600000 200000"));
        fixture.wait_until_free(&name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_its_main_thread_is_alive() {
    let (fixture, _node) = Fixture::with_node().await;
    let actor = fixture.holder("lock", TTL).await;
    actor.request("end-main");
    eventually(SOON, || actor.state() == Some('Z'));
    // It sends no heartbeats, and only the node renews its lease.
    fixture.assert_held_for(actor.client, "lock", TTL * 4).await;
    let status = Peer::observer(&fixture).status_of(actor.client).unwrap();
    assert_eq!(status.reason, "its main thread has ended, others go on");
    actor.signal(Signal::KILL);
    fixture.wait_until_free("lock").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_replaced_by_another_program_is_dead() {
    let (fixture, _node) = Fixture::with_node().await;
    let mut actor = fixture.holder("lock", LONG).await;
    let before = actor.client;
    assert_eq!(actor.request("exec"), "executed");
    wait_until_disconnected(&fixture, before);
    // The process lives, and has not yet proven that it executes another program.
    assert!(fixture.held(before, 1, "lock").await.is_some());
    actor.client = fastrand::u128(..);
    fixture.acquire(actor.client, 1, "another", LONG).await;
    actor.connect(&fixture, 2);
    actor.register(1, "another", LONG);
    fixture.wait_until_free("lock").await;
    assert!(fixture.held(actor.client, 1, "another").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_program_with_another_nonce_is_not_another_program() {
    let (fixture, _node) = Fixture::with_node().await;
    let mut actor = fixture.holder("lock", TTL).await;
    let before = actor.client;
    actor.send("close");
    wait_until_disconnected(&fixture, before);
    // As two copies of the library in one process would.
    actor.client = fastrand::u128(..);
    actor.connect(&fixture, 2);
    let client = Peer::observer(&fixture).status_of(before).unwrap();
    assert_eq!(client.processes, 1);
    actor.signal(Signal::KILL);
    fixture.wait_until_free("lock").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_inherits_the_connection_does_not_hide_the_death() {
    let (fixture, _node) = Fixture::with_node().await;
    let actor = fixture.holder("lock", LONG).await;
    let child = actor.request("fork");
    let child = Pid::from_raw(child.parse().unwrap()).unwrap();
    actor.signal(Signal::KILL);
    fixture.wait_until_free("lock").await;
    assert_ne!(process_state(child), Some('Z'));
    kill_process(child, Signal::KILL).unwrap();
}

/// The process that is not watched may be the last living one.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_a_process_that_is_not_watched_is_forgotten() {
    let (fixture, _node) = Fixture::with_node().await;
    let actor = fixture.holder("lock", LONG).await;
    let mut sleepers: Vec<_> = (0..64).map(|_| Sleeper::start()).collect();
    let replies = sleepers.iter().map(|it| actor.add_process(it.pid()));
    let refused = replies.enumerate().find(|(_, reply)| reply != "Joined");
    actor.signal(Signal::KILL);
    for sleeper in &mut sleepers[..63] {
        sleeper.kill();
    }
    // By the time that a later death has freed a lock, this one would have.
    let later = fixture.holder("later", LONG).await;
    later.signal(Signal::KILL);
    fixture.wait_until_free("later").await;
    assert!(fixture.held(actor.client, 1, "lock").await.is_some());
    assert_eq!(refused, Some((63, "Refused(Processes)".to_owned())));
    assert_eq!(Peer::observer(&fixture).status_of(actor.client), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_dead_when_all_its_processes_have_ended() {
    let (fixture, _node) = Fixture::with_node().await;
    let actor = fixture.holder("lock", TTL).await;
    let mut sleepers = [Sleeper::start(), Sleeper::start()];
    for sleeper in &sleepers {
        assert_eq!(actor.add_process(sleeper.pid()), "Joined");
    }
    wait_for_processes(&fixture, actor.client, 3);
    actor.signal(Signal::KILL);
    wait_for_processes(&fixture, actor.client, 2);
    sleepers[1].kill();
    wait_for_processes(&fixture, actor.client, 1);
    fixture.assert_held_for(actor.client, "lock", TTL * 3).await;
    sleepers[0].kill();
    fixture.wait_until_free("lock").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_that_are_not_registered_any_more_are_not_released() {
    let (fixture, _node) = Fixture::with_node().await;
    let disconnected = fixture.holder("disconnected", LONG).await;
    disconnected.send("disconnect");
    assert_eq!(disconnected.request("hear"), "closed");
    let mut observer = Peer::observer(&fixture);
    assert_eq!(observer.status_of(disconnected.client), None);
    let actor = fixture.holder("unregistered", LONG).await;
    fixture.acquire(actor.client, 2, "registered", LONG).await;
    actor.register(2, "registered", LONG);
    actor.request("unregister 1");
    disconnected.signal(Signal::KILL);
    actor.signal(Signal::KILL);
    fixture.wait_until_free("registered").await;
    for (client, name) in [
        (actor.client, "unregistered"),
        (disconnected.client, "disconnected"),
    ] {
        assert!(fixture.held(client, 1, name).await.is_some(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_of_a_dead_client_is_granted_to_the_next_waiter() {
    let (fixture, _node) = Fixture::with_node().await;
    let waiter = leasehold::Client::builder()
        .namespace("test")
        .connect(&fixture.redis.url())
        .await
        .unwrap();
    let mut times = Vec::new();
    for round in 0..10 {
        let name = format!("lock/{round}");
        let actor = fixture.holder(&name, LONG).await;
        let mutex = waiter.mutex(&name).unwrap();
        let acquired = tokio::spawn(async move { mutex.lock().await.unwrap() });
        let queued = format!("test:{{default:{name}}}:queue");
        eventually(SOON, || fixture.redis.cli(&["EXISTS", &queued]) == "1");
        let start = Instant::now();
        actor.signal(Signal::KILL);
        drop(acquired.await.unwrap());
        times.push(start.elapsed());
    }
    times.sort();
    let (median, worst) = (times[5], times[9]);
    println!("kill -9 to the next holder: median {median:?}, worst {worst:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_store_does_not_delay_another() {
    let fixture = Fixture::new().await;
    let other = RedisServer::start();
    let mut settings = fixture.settings();
    settings.stores.push(StoreSettings {
        url: other.url(),
        ..StoreSettings::default()
    });
    let _node = Node::start(settings).await.unwrap();
    let stuck = Actor::client_with(&fixture, 5, &other.url());
    stuck.register(1, "lock", LONG);
    let actor = fixture.holder("lock", LONG).await;
    other.stop();
    stuck.signal(Signal::KILL);
    wait_for_processes(&fixture, stuck.client, 0);
    let start = Instant::now();
    actor.signal(Signal::KILL);
    fixture.wait_until_free("lock").await;
    let took = start.elapsed();
    assert!(took < Duration::from_millis(1_800), "{took:?}");
    other.cont();
}
