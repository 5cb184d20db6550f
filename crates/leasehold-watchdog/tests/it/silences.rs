//! A client that is silent and lives keeps its locks, for as long as it may.

use std::time::{Duration, Instant};

use leasehold::__private::wire::{Changes, Liveness, Role, ToClient, ToNode};
use leasehold_core::Outcome;
use leasehold_testkit::{Proxy, Way, eventually, eventually_async};
use leasehold_watchdog::{Node, Settings};
use rustix::process::Signal;

use crate::actor::Actor;
use crate::fixture::{Fixture, SOON};
use crate::raw::{Raw, client_id, hello, introduction, registration, secret};

const TTL: Duration = Duration::from_millis(1_500);

/// Looks whether it holds its lock all the time.
async fn holds_for(fixture: &Fixture, actor: &Actor, name: &str, span: Duration) {
    let start = Instant::now();
    while start.elapsed() < span {
        let held = fixture.held(actor.client, 1, name).await;
        assert!(held.is_some(), "lost after {:?}", start.elapsed());
        tokio::time::sleep(TTL / 50).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_it_keeps_its_locks_and_goes_on_after_it() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let actor = fixture.holder("lock", TTL).await;
    actor.signal(Signal::STOP);
    holds_for(&fixture, &actor, "lock", TTL * 4).await;
    let rival = fixture.try_acquire(7, 1, "lock", TTL).await;
    assert!(matches!(rival, Outcome::Refused { .. }), "{rival:?}");
    let status = Raw::observer(&fixture).status_of(actor.client).unwrap();
    assert_eq!(status.condition, Liveness::Silent);
    assert_eq!(status.why, "it is stopped by a signal");
    assert_eq!(status.kept, ["lock"]);
    actor.signal(Signal::CONT);
    assert_eq!(actor.asks("beats 20"), "ok");
    eventually(SOON, || {
        let status = Raw::observer(&fixture).status_of(actor.client).unwrap();
        status.condition == Liveness::Alive
    });
    // It says that it lives, and renews nothing: its own matter.
    fixture.is_free("lock").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_connection_it_keeps_its_locks_as_long_as_it_lives() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let actor = fixture.holder("lock", TTL).await;
    actor.tell("close");
    holds_for(&fixture, &actor, "lock", TTL * 3).await;
    actor.signal(Signal::KILL);
    fixture.is_free("lock").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_for_too_long_it_loses_its_locks() {
    let fixture = Fixture::make().await;
    let max_pause = TTL * 3;
    let settings = Settings {
        max_pause,
        ..fixture.settings()
    };
    let _node = Node::start(settings).await.unwrap();
    let actor = fixture.holder("lock", TTL).await;
    let start = Instant::now();
    actor.signal(Signal::STOP);
    holds_for(&fixture, &actor, "lock", TTL * 2).await;
    fixture.is_free("lock").await;
    let kept = start.elapsed();
    assert!(kept >= max_pause - TTL, "{kept:?}");
    actor.signal(Signal::CONT);
    actor.tell("heartbeat");
    eventually(SOON, || {
        let status = Raw::observer(&fixture).status_of(actor.client).unwrap();
        status.condition == Liveness::Alive
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fixed_lease_is_not_renewed_and_is_released() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let actor = fixture.holder("renewed", TTL).await;
    let long = Duration::from_secs(600);
    fixture.acquire(actor.client, 2, "fixed", TTL).await;
    fixture.acquire(actor.client, 3, "long", long).await;
    for (number, name, ttl) in [(2, "fixed", TTL), (3, "long", long)] {
        let said = actor.register(number, name, ttl, "0");
        assert!(said.ends_with("refused: [] }"), "{said}");
    }
    actor.signal(Signal::STOP);
    fixture.is_free("fixed").await;
    holds_for(&fixture, &actor, "renewed", TTL * 2).await;
    actor.signal(Signal::KILL);
    fixture.is_free("long").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connected_again_it_has_what_it_had_until_it_says_otherwise() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let actor = fixture.holder("lock", TTL).await;
    let long = Duration::from_secs(600);
    for (number, name) in [(2, "left"), (3, "long")] {
        fixture.acquire(actor.client, number, name, long).await;
        actor.registers(number, name, long);
    }
    actor.says_hello(&fixture, 1);
    let leases = || {
        Raw::observer(&fixture)
            .status_of(actor.client)
            .unwrap()
            .leases
    };
    assert_eq!(leases(), 3);
    holds_for(&fixture, &actor, "lock", TTL * 2).await;
    actor.asks("unregister 2");
    assert_eq!(leases(), 2);
    actor.signal(Signal::KILL);
    fixture.is_free("lock").await;
    fixture.is_free("long").await;
    assert!(fixture.held(actor.client, 2, "left").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_stood_still_is_tried_again() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let ttl = Duration::from_secs(20);
    let actor = Actor::introduced(&fixture);
    fixture.acquire(actor.client, 1, "lock", ttl).await;
    let said = actor.asks(&format!("register 1 lock {} 100 -", ttl.as_millis()));
    assert!(said.ends_with("refused: [] }"), "{said}");
    actor.signal(Signal::STOP);
    let renewed = async || fixture.held(actor.client, 1, "lock").await > Some(ttl - ttl / 10);
    eventually_async(SOON, renewed).await;
    fixture.redis.stop();
    let mut observer = Raw::observer(&fixture);
    let asks = |observer: &mut Raw<_>| observer.asks(&ask(actor.client, 1));
    // No renewal is confirmed any more.
    let mut before = asks(&mut observer);
    eventually(SOON, || {
        let now = asks(&mut observer);
        std::thread::sleep(Duration::from_millis(500));
        std::mem::replace(&mut before, now.clone()) == now
    });
    fixture.redis.cont();
    eventually(SOON, || asks(&mut observer) != before);
    assert!(fixture.held(actor.client, 1, "lock").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_leases_of_many_silent_clients_are_renewed_in_time() {
    const CLIENTS: usize = 20;
    const LEASES: u64 = 1_000;
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let ttl = Duration::from_secs(6);
    let mut actors = Vec::new();
    for _ in 0..CLIENTS {
        let actor = Actor::introduced(&fixture);
        for number in 1..=LEASES {
            let name = format!("{:x}/{number}", actor.client);
            fixture
                .acquire(actor.client, number, &name, Duration::from_secs(120))
                .await;
        }
        actors.push(actor);
    }
    for actor in &actors {
        let (client, ttl) = (actor.client, ttl.as_millis());
        let many = format!("register-many {client:x} {LEASES} {ttl} {}", ttl / 3);
        assert_eq!(actor.asks(&many), "ok");
    }
    for actor in &actors {
        actor.signal(Signal::STOP);
    }
    let start = Instant::now();
    let mut observer = Raw::observer(&fixture);
    for actor in &actors {
        for number in [1, LEASES / 2, LEASES] {
            let asked = ask(actor.client, number);
            eventually(ttl * 2, || {
                let answer = observer.asks(&asked);
                answer != Some(ToClient::LeaseStatus(None))
            });
        }
    }
    println!("all were renewed within {:?}", start.elapsed());
    assert!(start.elapsed() < ttl);
}

/// An overloaded machine, or a store far away. Each client falls due by itself.
#[tokio::test(flavor = "multi_thread")]
async fn many_clients_are_renewed_in_time_where_every_answer_is_late() {
    const CLIENTS: u128 = 150;
    const LEASES: u64 = 20;
    const LATE: Duration = Duration::from_millis(300);
    let fixture = Fixture::make().await;
    let proxy = Proxy::before(&fixture.redis);
    let mut settings = fixture.settings();
    settings.stores[0].url = proxy.url();
    let _node = Node::start(settings).await.unwrap();
    let ttl = Duration::from_secs(20);
    let mut clients = Vec::new();
    for id in 1..=CLIENTS {
        for number in 1..=LEASES {
            fixture
                .acquire(id, number, &format!("{id}/{number}"), SOON * 10)
                .await;
        }
        let mut introduction = introduction(&fixture);
        introduction.store = "main".into();
        let mut client = Raw::connect(&fixture.socket);
        client.welcomed(hello(Role::Client(secret(id), introduction)));
        clients.push(client);
    }
    proxy.delay(Way::Back, LATE..=LATE);
    let start = Instant::now();
    for (id, client) in (1..).zip(&mut clients) {
        let ttl = u32::try_from(ttl.as_millis()).unwrap();
        let register =
            (1..=LEASES).map(|number| registration(number, &format!("{id}/{number}"), ttl));
        let answer = client.asks(&ToNode::Changes(Changes {
            batch: 0,
            register: register.collect(),
            unregister: vec![],
        }));
        assert!(
            matches!(answer, Some(ToClient::Acknowledged { refused, .. }) if refused.is_empty())
        );
        // One after the other, as they would be.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut observer = Raw::observer(&fixture);
    for id in 1..=CLIENTS {
        for number in 1..=LEASES {
            let asked = ask(id, number);
            eventually(ttl * 3, || {
                observer.asks(&asked) != Some(ToClient::LeaseStatus(None))
            });
        }
    }
    println!("all were renewed within {:?}", start.elapsed());
    assert!(start.elapsed() < ttl, "{:?}", start.elapsed());
}

fn ask(client: u128, number: u64) -> ToNode {
    ToNode::LeaseQuery {
        client: client_id(client).to_bytes(),
        number,
    }
}
