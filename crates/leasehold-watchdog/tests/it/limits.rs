//! The limits on clients, leases, connections and files.

use std::time::Duration;

use leasehold::watchdog::wire::Refusal;
use leasehold_watchdog::{Limits, Node, Settings};
use rustix::process::Signal;

use crate::actor::{Actor, Sleeper};
use crate::fixture::Fixture;
use crate::peer::{Peer, hello, registration, role};

const TTL: Duration = Duration::from_secs(4);

async fn node(fixture: &Fixture, limits: Limits) -> Node {
    let settings = Settings {
        limits,
        ..fixture.settings()
    };
    Node::start(settings).await.unwrap()
}

/// Registers leases of these numbers. Returns the numbers of the refused ones.
fn register<S: std::io::Read + std::io::Write>(
    client: &mut Peer<S>,
    numbers: std::ops::Range<u64>,
) -> Vec<u64> {
    let refused = client.register(numbers.map(|number| registration(number, "lock", 60_000)));
    let number = |(number, refusal)| {
        assert_eq!(refusal, Refusal::Leases);
        number
    };
    refused.into_iter().map(number).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_clients_is_limited() {
    let fixture = Fixture::new().await;
    let limits = Limits {
        clients: 2,
        ..Limits::default()
    };
    let _node = node(&fixture, limits).await;
    let _first = Peer::client(&fixture, 1);
    let second = Peer::client(&fixture, 2);
    let mut third = Peer::connect(&fixture.socket);
    third.send(&hello(role(&fixture, 3)));
    third.expect_refusal(Refusal::Clients);
    // A known client needs no room, and a disconnected one makes room.
    let mut again = Peer::client(&fixture, 2);
    drop(second);
    again.disconnect();
    let _third = Peer::client(&fixture, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_leases_is_limited() {
    let fixture = Fixture::new().await;
    let limits = Limits {
        leases_per_client: 10,
        leases: 15,
        ..Limits::default()
    };
    let _node = node(&fixture, limits).await;
    let mut first = Peer::client(&fixture, 1);
    let mut second = Peer::client(&fixture, 2);
    assert_eq!(register(&mut first, 1..13), [11, 12]);
    assert_eq!(register(&mut second, 1..8), [6, 7]);
    // Other terms for a registered lease need no room.
    assert_eq!(register(&mut second, 5..7), [6]);
    assert_eq!(first.change(vec![], vec![1, 2, 3]), []);
    assert_eq!(register(&mut second, 6..12), [9, 10, 11]);
    first.disconnect();
    let refused: Vec<_> = (22..30).collect();
    assert_eq!(register(&mut second, 20..30), refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_excess_connection_displaces_the_oldest_without_a_client() {
    let fixture = Fixture::new().await;
    let limits = Limits {
        clients: 2,
        ..Limits::default()
    };
    let _node = node(&fixture, limits).await;
    let mut client = Peer::client(&fixture, 1);
    let mut idle: Vec<_> = (0..29).map(|_| Peer::connect(&fixture.socket)).collect();
    let mut observers: Vec<_> = (0..100).map(|_| Peer::observer(&fixture)).collect();
    for oldest in &mut idle[..3] {
        observers.push(Peer::observer(&fixture));
        assert_eq!(oldest.receive(), None);
    }
    let mut late = Peer::client(&fixture, 2);
    assert!(register(&mut client, 1..2).is_empty());
    assert!(register(&mut late, 1..2).is_empty());
    assert_eq!(observers[0].status().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_leave_files_for_the_store() {
    let fixture = Fixture::new().await;
    let _node = Actor::node(&fixture, 256);
    let actor = fixture.holder("lock", TTL).await;
    let open = |_| {
        let mut observer = Peer::connect(&fixture.socket);
        observer.send(&hello(leasehold::watchdog::wire::Role::Observer));
        observer
    };
    let _idle: Vec<_> = (0..300).map(open).collect();
    // The node has to open a connection to its store now.
    fixture.redis.cli(&["client", "kill", "type", "normal"]);
    actor.signal(Signal::STOP);
    fixture.assert_held_for(actor.client, "lock", TTL * 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn further_processes_leave_files_for_the_store() {
    const FILES: u32 = 192;
    let fixture = Fixture::new().await;
    let node = Actor::node(&fixture, FILES);
    let paused = fixture.holder("lock", TTL).await;
    let sleepers: Vec<_> = (0..40).map(|_| Sleeper::start()).collect();
    let clients: Vec<_> = (0..4).map(|_| Actor::client(&fixture)).collect();
    let mut refused = Vec::new();
    for client in &clients {
        let mut replies = sleepers.iter().map(|it| client.add_process(it.pid()));
        if let Some(reply) = replies.find(|reply| reply != "Joined") {
            assert_eq!(reply, "Refused(Processes)");
            refused.push(client);
        }
    }
    let open = node.open_files();
    assert!(open < FILES as usize - 64, "{open} files are open");
    // All but the first, which found room.
    assert_eq!(refused.len(), 3);
    for client in refused {
        assert_eq!(client.request("hear"), "closed");
        assert_eq!(Peer::observer(&fixture).status_of(client.client), None);
    }
    // The node has to open a connection to its store now.
    fixture.redis.cli(&["client", "kill", "type", "normal"]);
    paused.signal(Signal::STOP);
    fixture
        .assert_held_for(paused.client, "lock", TTL * 2)
        .await;
}
