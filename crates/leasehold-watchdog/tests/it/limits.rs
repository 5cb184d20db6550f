//! The limits on clients, leases, connections and files.

use std::ops::Range;
use std::os::unix::net::UnixStream;

use leasehold::__private::wire::{Refusal, Role, ToClient};
use leasehold_testkit::found_within;
use rustix::process::Signal;

use crate::actor::{self, Actor, Sleeper};
use crate::fixture::{Fixture, LONG, SOON, TTL};
use crate::peer::{Peer, hello, registration, role};

/// Registers leases of these numbers. Returns the numbers of the refused ones.
fn register(client: &mut Peer<UnixStream>, numbers: Range<u64>) -> Vec<u64> {
    let refused = client.register(numbers.map(|number| registration(number, "lock", LONG)));
    let number = |(number, refusal)| {
        assert_eq!(refusal, Refusal::Leases);
        number
    };
    refused.into_iter().map(number).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_numbers_of_clients_and_leases_are_limited() {
    let (fixture, _node) = Fixture::with_settings(|settings| {
        settings.limits.clients = 2;
        settings.limits.leases_per_client = 10;
        settings.limits.leases = 15;
    })
    .await;
    let mut first = Peer::client(&fixture, 1);
    let _second = Peer::client(&fixture, 2);
    let mut third = Peer::connect(&fixture.socket);
    third.send(&hello(role(&fixture, 3)));
    third.expect_refusal(Refusal::Clients);
    // A known client needs no room.
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
    let _third = Peer::client(&fixture, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_excess_connection_displaces_the_oldest_without_a_client() {
    let (fixture, _node) = Fixture::with_settings(|it| it.limits.clients = 2).await;
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
async fn connections_and_processes_leave_files_for_the_store() {
    const FILES: u32 = 192;
    let fixture = Fixture::new().await;
    let node = actor::node(&fixture, FILES);
    let paused = fixture.holder("lock", TTL).await;
    let sleepers: Vec<_> = (0..40).map(|_| Sleeper::start()).collect();
    let mut clients: Vec<_> = (0..4).map(|_| Actor::client(&fixture)).collect();
    let mut refused = Vec::new();
    for client in &mut clients {
        let mut replies = sleepers.iter().map(|it| client.add_process(it));
        if let Some(reply) = replies.find(|reply| *reply != Some(ToClient::Joined)) {
            assert_eq!(reply, Some(ToClient::Refused(Refusal::Processes)));
            refused.push(client);
        }
    }
    let files = std::fs::read_dir(format!("/proc/{}/fd", node.pid()));
    let open = files.unwrap().count();
    assert!(open < FILES as usize - 64, "{open} files are open");
    // All but the first, which found room.
    assert_eq!(refused.len(), 3);
    for client in refused {
        assert_eq!(client.peer.receive(), None);
        // The node closes its files a moment later, and may have none for another connection until then.
        let observer = found_within(SOON, || {
            let mut observer = Peer::connect(&fixture.socket);
            let reply = observer.request(&hello(Role::Observer));
            matches!(reply, Some(ToClient::Welcome { .. })).then_some(observer)
        });
        assert_eq!(observer.unwrap().status_of(client.client), None);
    }
    let idle = (0..300).map(|_| {
        let mut idle = Peer::connect(&fixture.socket);
        idle.send(&hello(Role::Observer));
        idle
    });
    let _idle: Vec<_> = idle.collect();
    // The node has to open a connection to its store now.
    fixture.redis.cli(&["client", "kill", "type", "normal"]);
    paused.signal(Signal::STOP);
    fixture.wait_for_renewal("lock");
}
