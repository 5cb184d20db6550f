//! A client that dies frees its locks at once, however it dies; one that does not, does not.

use std::fs;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use leasehold_testkit::eventually;
use rustix::process::Signal;

use crate::actor::Actor;
use crate::fixture::{Fixture, SOON};
use crate::raw::Raw;

/// So long that nothing in these tests ends by itself.
const LONG: Duration = Duration::from_secs(600);

/// A process that a test ends.
pub(crate) struct Sleeper(Child);

impl Sleeper {
    pub(crate) fn start() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    fn end(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until the node sees so many processes of a client.
fn sees(fixture: &Fixture, client: u128, processes: u32) {
    let mut observer = Raw::observer(fixture);
    eventually(SOON, || {
        observer.status_of(client).unwrap().processes == processes
    });
}

/// The state of a process's main thread.
fn state(pid: rustix::process::Pid) -> String {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.chars().take(1).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_it_frees_its_locks_at_once() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let mut times = Vec::new();
    for round in 0..20 {
        let name = format!("lock/{round}");
        // Its parent does not wait for it before its lock is free: it is a zombie.
        let actor = fixture.holder(&name, LONG).await;
        let start = Instant::now();
        actor.signal(Signal::KILL);
        fixture.is_free(&name).await;
        times.push(start.elapsed());
        assert_eq!(state(actor.pid()), "Z");
    }
    times.sort();
    let (median, worst) = (times[10], times[19]);
    println!("kill -9 to free: median {median:?}, worst {worst:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_just_after_it_has_registered_it_frees_its_locks() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    for round in 0..20 {
        let name = format!("lock/{round}");
        let actor = Actor::introduced(&fixture);
        fixture.acquire(actor.client, 1, &name, LONG).await;
        actor.tell(&format!("register-and-die 1 {name} 600000 200000"));
        fixture.is_free(&name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_it_is_stopped_it_frees_its_locks() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let actor = fixture.holder("lock", LONG).await;
    actor.signal(Signal::STOP);
    eventually(SOON, || state(actor.pid()) == "T");
    actor.signal(Signal::KILL);
    fixture.is_free("lock").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_main_thread_it_lives() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let ttl = Duration::from_millis(1_200);
    let actor = fixture.holder("lock", ttl).await;
    actor.asks("end-main");
    eventually(SOON, || state(actor.pid()) == "Z");
    // Nobody says that it lives, and nobody renews its lease but the node.
    let start = Instant::now();
    while start.elapsed() < ttl * 4 {
        assert!(fixture.held(actor.client, 1, "lock").await.is_some());
        tokio::time::sleep(ttl / 20).await;
    }
    let why = Raw::observer(&fixture).status_of(actor.client).unwrap().why;
    assert_eq!(why, "its main thread has ended, others go on");
    actor.signal(Signal::KILL);
    fixture.is_free("lock").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_by_another_program_it_is_dead() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let mut actor = fixture.holder("lock", LONG).await;
    let before = actor.client;
    actor.tell("exec");
    sees_disconnected(&fixture, before);
    // The process lives, and nobody has said yet that it runs another program.
    assert!(fixture.held(before, 1, "lock").await.is_some());
    actor.client = fastrand::u128(..);
    fixture.acquire(actor.client, 1, "another", LONG).await;
    actor.says_hello(&fixture, 2);
    actor.registers(1, "another", LONG);
    fixture.is_free("lock").await;
    assert!(fixture.held(actor.client, 1, "another").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_program_with_another_nonce_is_not_another_program() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let mut actor = fixture.holder("lock", Duration::from_secs(2)).await;
    let before = actor.client;
    actor.tell("close");
    sees_disconnected(&fixture, before);
    // As two copies of the library in one process would.
    actor.client = fastrand::u128(..);
    actor.says_hello(&fixture, 2);
    let client = Raw::observer(&fixture).status_of(before).unwrap();
    assert_eq!(client.processes, 1);
    actor.signal(Signal::KILL);
    fixture.is_free("lock").await;
}

fn sees_disconnected(fixture: &Fixture, client: u128) {
    let mut observer = Raw::observer(fixture);
    eventually(SOON, || !observer.status_of(client).unwrap().connected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_with_its_connection_does_not_hide_its_death() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let actor = fixture.holder("lock", LONG).await;
    let child = actor.asks("inherit");
    let child = rustix::process::Pid::from_raw(child.parse().unwrap()).unwrap();
    actor.signal(Signal::KILL);
    fixture.is_free("lock").await;
    assert_ne!(state(child), "Z");
    rustix::process::kill_process(child, Signal::KILL).unwrap();
}

/// The process that is not watched may be the last that lives.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_a_process_that_is_not_watched_is_forgotten() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let actor = fixture.holder("lock", LONG).await;
    let mut sleepers: Vec<_> = (0..64).map(|_| Sleeper::start()).collect();
    let mut refused = None;
    for (nth, sleeper) in sleepers.iter().enumerate() {
        let said = actor.joins(sleeper.pid());
        if said != "Joined" {
            refused = Some((nth, said));
        }
    }
    actor.signal(Signal::KILL);
    for sleeper in &mut sleepers[..63] {
        sleeper.end();
    }
    // As soon as a later death has freed a lock, this one would have.
    let later = fixture.holder("later", LONG).await;
    later.signal(Signal::KILL);
    fixture.is_free("later").await;
    assert!(fixture.held(actor.client, 1, "lock").await.is_some());
    assert_eq!(refused, Some((63, "Refused(Processes)".to_owned())));
    assert_eq!(Raw::observer(&fixture).status_of(actor.client), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_dead_when_all_its_processes_are() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let ttl = Duration::from_millis(1_200);
    let actor = fixture.holder("lock", ttl).await;
    let mut sleepers = [Sleeper::start(), Sleeper::start()];
    for sleeper in &sleepers {
        assert_eq!(actor.joins(sleeper.pid()), "Joined");
    }
    sees(&fixture, actor.client, 3);
    actor.signal(Signal::KILL);
    sees(&fixture, actor.client, 2);
    sleepers[1].end();
    sees(&fixture, actor.client, 1);
    let start = Instant::now();
    while start.elapsed() < ttl * 3 {
        assert!(fixture.held(actor.client, 1, "lock").await.is_some());
        tokio::time::sleep(ttl / 20).await;
    }
    let left = fixture.held(actor.client, 1, "lock").await.unwrap();
    sleepers[0].end();
    let freed = Instant::now();
    fixture.is_free("lock").await;
    println!("freed after {:?}, {left:?} before its end", freed.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_has_released_itself_is_left_alone() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let actor = fixture.holder("lock", LONG).await;
    fixture.acquire(actor.client, 2, "registered", LONG).await;
    actor.registers(2, "registered", LONG);
    actor.asks("unregister 1");
    actor.signal(Signal::KILL);
    fixture.is_free("registered").await;
    assert!(fixture.held(actor.client, 1, "lock").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_farewell_nothing_is_done() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let actor = fixture.holder("lock", LONG).await;
    let witness = fixture.holder("witness", LONG).await;
    actor.tell("disconnect");
    assert_eq!(actor.asks("hear"), "closed");
    assert_eq!(Raw::observer(&fixture).status_of(actor.client), None);
    actor.signal(Signal::KILL);
    witness.signal(Signal::KILL);
    fixture.is_free("witness").await;
    assert!(fixture.held(actor.client, 1, "lock").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn its_lock_goes_to_the_next_who_waits() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
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
        let waits = tokio::spawn(async move { mutex.lock().await.unwrap() });
        let queued = format!("test:{{default:{name}}}:queue");
        eventually(SOON, || fixture.redis.cli(&["EXISTS", &queued]) == "1");
        let start = Instant::now();
        actor.signal(Signal::KILL);
        drop(waits.await.unwrap());
        times.push(start.elapsed());
    }
    times.sort();
    println!(
        "kill -9 to the next holder: median {:?}, worst {:?}",
        times[5], times[9]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_stuck_delays_no_other() {
    let fixture = Fixture::make().await;
    let other = leasehold_testkit::RedisServer::start();
    let mut settings = fixture.settings();
    settings.stores.push(leasehold_watchdog::StoreSettings {
        url: other.url(),
        ..Default::default()
    });
    let _node = leasehold_watchdog::Node::start(settings).await.unwrap();
    let stuck = Actor::start();
    let said = stuck.hello(&fixture, stuck.client, 1, &other.url());
    assert!(said.starts_with("Welcome"), "{said}");
    stuck.registers(1, "lock", LONG);
    let actor = fixture.holder("lock", LONG).await;
    other.stop();
    stuck.signal(Signal::KILL);
    sees(&fixture, stuck.client, 0);
    let start = Instant::now();
    actor.signal(Signal::KILL);
    fixture.is_free("lock").await;
    assert!(
        start.elapsed() < Duration::from_millis(1_800),
        "{:?}",
        start.elapsed()
    );
    other.cont();
}
