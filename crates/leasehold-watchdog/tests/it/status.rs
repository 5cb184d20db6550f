//! The status of the clients of a node.

use leasehold::__private::wire::Liveness;

use crate::fixture::{Fixture, LONG};
use crate::peer::{Peer, registration, role_with};

#[tokio::test(flavor = "multi_thread")]
async fn the_status_describes_each_client() {
    let (fixture, _node) = Fixture::with_node().await;
    let mut client = Peer::client(&fixture, 5);
    let leases = [(1, "one"), (2, "two")];
    let register = leases.map(|(number, name)| registration(number, name, LONG));
    assert_eq!(client.register(register), []);
    let status = Peer::observer(&fixture).status_of(5).unwrap();
    assert_eq!(status.host, "here");
    assert_eq!(status.pid, std::process::id());
    assert_eq!(status.program, "test");
    assert_eq!(status.label, "a label");
    assert_eq!(status.store, fixture.url);
    assert_eq!((status.leases, status.processes), (2, 1));
    assert!(status.connected);
    assert_eq!(status.liveness, Liveness::Alive);
    assert_eq!((&*status.reason, status.renewed.len()), ("", 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_many_clients_comes_in_pages() {
    let (fixture, _node) = Fixture::with_node().await;
    let mut clients = Vec::new();
    for id in 0..400 {
        let role = role_with(&fixture, id, |info| {
            // Long texts are cut, so that pages stay short.
            info.label = "ä".repeat(10_000);
            info.host = format!("host\u{1b}[{id}");
        });
        clients.push(Peer::with_role(&fixture, role));
    }
    let all = Peer::observer(&fixture).status();
    assert_eq!(all.len(), 400);
    assert!(all.iter().all(|status| status.label == "ä".repeat(64)));
    assert!(all.iter().all(|status| status.host.starts_with("host[")));
}
