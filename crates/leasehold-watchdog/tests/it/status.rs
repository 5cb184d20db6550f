//! The status of the clients of a node.

use leasehold::__private::wire::Liveness;

use crate::fixture::Fixture;
use crate::peer::{Peer, role_with};

#[tokio::test(flavor = "multi_thread")]
async fn the_status_describes_each_of_many_clients() {
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
    for status in all {
        assert!(status.host.starts_with("host["), "{}", status.host);
        assert_eq!(status.label, "ä".repeat(64));
        assert_eq!((status.pid, &*status.program), (std::process::id(), "test"));
        assert_eq!((status.store, status.processes), (fixture.url.clone(), 1));
        assert!(status.connected && status.renewed.is_empty());
        assert_eq!((status.liveness, &*status.reason), (Liveness::Alive, ""));
    }
}
