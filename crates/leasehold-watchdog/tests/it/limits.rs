//! A node takes on no more than it may.

use std::time::{Duration, Instant};

use leasehold::__private::wire::{Changes, Refusal, Role, ToClient, ToNode};
use leasehold_watchdog::{Limits, Node, Settings};
use rustix::process::Signal;

use crate::actor::Actor;
use crate::deaths::Sleeper;
use crate::fixture::Fixture;
use crate::raw::{Raw, hello, registration, role};

async fn node(fixture: &Fixture, limits: Limits) -> Node {
    let settings = Settings {
        limits,
        ..fixture.settings()
    };
    Node::start(settings).await.unwrap()
}

/// Registers leases of these numbers, and answers which were refused.
fn register(
    client: &mut Raw<std::os::unix::net::UnixStream>,
    numbers: std::ops::Range<u64>,
) -> Vec<u64> {
    let register = numbers
        .clone()
        .map(|number| registration(number, "lock", 60_000));
    let answer = client.asks(&ToNode::Changes(Changes {
        batch: numbers.start,
        register: register.collect(),
        unregister: vec![],
    }));
    let Some(ToClient::Acknowledged { refused, .. }) = answer else {
        panic!("{answer:?}");
    };
    assert!(
        refused
            .iter()
            .all(|(_, refusal)| *refusal == Refusal::Leases)
    );
    refused.into_iter().map(|(number, _)| number).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_clients_than_it_may() {
    let fixture = Fixture::make().await;
    let limits = Limits {
        clients: 2,
        ..Limits::default()
    };
    let _node = node(&fixture, limits).await;
    let _first = Raw::client(&fixture, 1);
    let second = Raw::client(&fixture, 2);
    let mut third = Raw::connect(&fixture.socket);
    let word = hello(role(&fixture, 3));
    assert_eq!(third.asks(&word), Some(ToClient::Refused(Refusal::Clients)));
    // One that is known is no further one, and one that has left makes room.
    let mut again = Raw::client(&fixture, 2);
    drop(second);
    again.says(&ToNode::Disconnect);
    assert_eq!(again.hears(), None);
    let _third = Raw::client(&fixture, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_leases_than_it_may() {
    let fixture = Fixture::make().await;
    let limits = Limits {
        leases_per_client: 10,
        leases: 15,
        ..Limits::default()
    };
    let _node = node(&fixture, limits).await;
    let mut first = Raw::client(&fixture, 1);
    let mut second = Raw::client(&fixture, 2);
    assert_eq!(register(&mut first, 1..13), [11, 12]);
    assert_eq!(register(&mut second, 1..8), [6, 7]);
    // Other terms for one that is known need no room.
    assert_eq!(register(&mut second, 5..7), [6]);
    let left = first.asks(&ToNode::Changes(Changes {
        batch: 50,
        register: vec![],
        unregister: vec![1, 2, 3],
    }));
    assert!(matches!(left, Some(ToClient::Acknowledged { .. })));
    assert_eq!(register(&mut second, 6..12), [9, 10, 11]);
    first.says(&ToNode::Disconnect);
    assert_eq!(first.hears(), None);
    assert_eq!(
        register(&mut second, 20..30),
        [22, 23, 24, 25, 26, 27, 28, 29]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_too_many_ends_the_oldest_that_no_client_speaks_by() {
    let fixture = Fixture::make().await;
    let limits = Limits {
        clients: 2,
        ..Limits::default()
    };
    let _node = node(&fixture, limits).await;
    let mut client = Raw::client(&fixture, 1);
    let mut idle: Vec<_> = (0..29).map(|_| Raw::connect(&fixture.socket)).collect();
    let mut guests: Vec<_> = (0..100).map(|_| Raw::observer(&fixture)).collect();
    for oldest in &mut idle[..3] {
        guests.push(Raw::observer(&fixture));
        assert_eq!(oldest.hears(), None);
    }
    let mut late = Raw::client(&fixture, 2);
    let leases = register(&mut client, 1..2);
    assert!(leases.is_empty());
    assert!(register(&mut late, 1..2).is_empty());
    assert_eq!(guests[0].status().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_leave_files_for_the_store() {
    const TTL: Duration = Duration::from_secs(4);
    let fixture = Fixture::make().await;
    let _node = Actor::node_with_files(&fixture, 256);
    let actor = fixture.holder("lock", TTL).await;
    let idle: Vec<_> = (0..300)
        .map(|_| {
            let mut raw = Raw::connect(&fixture.socket);
            raw.says(&hello(Role::Observer));
            raw
        })
        .collect();
    // The node has to open a connection to its store now.
    fixture.redis.cli(&["client", "kill", "type", "normal"]);
    actor.signal(Signal::STOP);
    let start = Instant::now();
    while start.elapsed() < TTL * 3 {
        assert!(
            fixture.is_held(actor.client, 1, "lock").await,
            "lost after {:?}",
            start.elapsed()
        );
        tokio::time::sleep(TTL / 20).await;
    }
    drop(idle);
}

#[tokio::test(flavor = "multi_thread")]
async fn further_processes_leave_files_for_the_store() {
    const TTL: Duration = Duration::from_secs(4);
    const FILES: usize = 192;
    let fixture = Fixture::make().await;
    let node = Actor::node_with_files(&fixture, 192);
    let paused = fixture.holder("lock", TTL).await;
    let sleepers: Vec<_> = (0..40).map(|_| Sleeper::start()).collect();
    let clients: Vec<_> = (0..4).map(|_| Actor::introduced(&fixture)).collect();
    let refused = clients.iter().filter(|client| {
        let mut said = sleepers.iter().map(|sleeper| client.joins(sleeper.pid()));
        let refused = said.find(|said| said != "Joined");
        assert!(
            refused.is_none() || refused.as_deref() == Some("Refused(Processes)"),
            "{refused:?}"
        );
        refused.is_some()
    });
    let refused: Vec<_> = refused.collect();
    let open = std::fs::read_dir(format!("/proc/{}/fd", node.pid().as_raw_nonzero()));
    let open = open.unwrap().count();
    assert!(open < FILES - 64, "{open} files are open");
    // All but the first, which found room.
    assert_eq!(refused.len(), 3);
    for client in refused {
        assert_eq!(client.asks("hear"), "closed");
        assert_eq!(Raw::observer(&fixture).status_of(client.client), None);
    }
    // The node has to open a connection to its store now.
    fixture.redis.cli(&["client", "kill", "type", "normal"]);
    paused.signal(Signal::STOP);
    let start = Instant::now();
    while start.elapsed() < TTL * 2 {
        let held = fixture.is_held(paused.client, 1, "lock").await;
        assert!(held, "lost after {:?}", start.elapsed());
        tokio::time::sleep(TTL / 20).await;
    }
}
