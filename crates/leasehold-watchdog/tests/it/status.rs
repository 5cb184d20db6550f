//! Who is there, for people.

use leasehold::__private::wire::{Changes, Liveness, Role, ToClient, ToNode};

use crate::fixture::Fixture;
use crate::raw::{Raw, hello, introduction, registration, secret};

#[tokio::test(flavor = "multi_thread")]
async fn it_says_who_is_there() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let mut client = Raw::client(&fixture, 5);
    let answer = client.asks(&ToNode::Changes(Changes {
        batch: 0,
        register: vec![
            registration(1, "one", 60_000),
            registration(2, "two", 60_000),
        ],
        unregister: vec![],
    }));
    assert_eq!(
        answer,
        Some(ToClient::Acknowledged {
            batch: 0,
            refused: vec![]
        })
    );
    let status = Raw::observer(&fixture).status_of(5).unwrap();
    assert_eq!(status.host, "here");
    assert_eq!(status.pid, std::process::id());
    assert_eq!(status.program, "test");
    assert_eq!(status.label, "a label");
    assert_eq!(status.store, fixture.url);
    assert_eq!((status.leases, status.processes), (2, 1));
    assert!(status.connected);
    assert_eq!(status.condition, Liveness::Alive);
    assert_eq!((&*status.why, status.kept.len()), ("", 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_are_told_in_pages() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let mut clients = Vec::new();
    for id in 0..400 {
        let mut introduction = introduction(&fixture);
        // What is too long is cut, so that pages stay short.
        introduction.label = "ä".repeat(10_000);
        introduction.host = format!("host\u{1b}[{id}");
        let mut client = Raw::connect(&fixture.socket);
        client.welcomed(hello(Role::Client(secret(id), introduction)));
        clients.push(client);
    }
    let all = Raw::observer(&fixture).status();
    assert_eq!(all.len(), 400);
    assert!(all.iter().all(|status| status.label == "ä".repeat(64)));
    assert!(all.iter().all(|status| status.host.starts_with("host[")));
}
