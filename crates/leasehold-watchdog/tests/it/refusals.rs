//! Invalid and forbidden messages are refused with the reason.

use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::Duration;

use leasehold::__private::frame::encode;
use leasehold::__private::wire::{ClientInfo, Refusal, Registration, Role, ToNode};
use leasehold_testkit::eventually;
use leasehold_watchdog::Permission;

use crate::actor::Actor;
use crate::fixture::{Fixture, LONG, SOON};
use crate::peer::{
    Peer, changes, client_id, hello, registration, role, role_with, send_with_descriptors,
};

/// Sends these messages, of which the last is refused.
#[track_caller]
fn expect_refusal(fixture: &Fixture, messages: &[ToNode], refusal: Refusal) {
    let mut peer = Peer::connect(&fixture.socket);
    for message in messages {
        peer.send(message);
    }
    peer.expect_refusal(refusal);
}

/// The hello of client 1 with other client info.
fn hello_of(fixture: &Fixture, change: impl FnOnce(&mut ClientInfo)) -> ToNode {
    hello(role_with(fixture, 1, change))
}

#[tokio::test(flavor = "multi_thread")]
async fn unexpected_messages_are_refused() {
    let (fixture, _node) = Fixture::with_node().await;
    let client = || hello(role(&fixture, 1));
    let observer = || hello(Role::Observer);
    let changes = |batch| changes(batch, vec![]);
    for messages in [
        vec![ToNode::Heartbeat],
        vec![ToNode::Status],
        vec![changes(0)],
        vec![ToNode::Disconnect],
        vec![observer(), observer()],
        vec![observer(), client()],
        vec![observer(), ToNode::Heartbeat],
        vec![observer(), changes(0)],
        vec![observer(), ToNode::Process],
        vec![client(), client()],
        // Repeated, and out of order.
        vec![client(), changes(3), changes(3)],
        vec![client(), changes(3), changes(4), changes(2)],
    ] {
        expect_refusal(&fixture, &messages, Refusal::Message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_frames_are_refused() {
    let (fixture, _node) = Fixture::with_node().await;
    let valid = encode(&hello(Role::Observer)).unwrap();
    let mut other_version = valid.clone();
    other_version[4] = 9;
    let mut too_long_by_one = valid;
    too_long_by_one[3] += 1;
    too_long_by_one.push(0);
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 100],
        vec![0; 4],
        vec![0, 0, 0, 2, 1, 99],
        // The hello of an observer in version 1.
        vec![0, 0, 0, 4, 1, 0, 0, 1],
        other_version,
        too_long_by_one,
    ] {
        let mut peer = Peer::connect(&fixture.socket);
        peer.stream.write_all(&bytes).unwrap();
        peer.expect_refusal(Refusal::Message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_an_unknown_store_or_an_invalid_keyspace_is_refused() {
    let (fixture, _node) = Fixture::with_node().await;
    let unknown = hello_of(&fixture, |info| {
        info.store = "redis://elsewhere:6379/0".into();
    });
    expect_refusal(&fixture, &[unknown], Refusal::Store);
    for (namespace, tenant) in [("", "default"), ("test", "a:b"), ("{", "default")] {
        let invalid = hello_of(&fixture, |info| {
            (info.namespace, info.tenant) = (namespace.into(), tenant.into());
        });
        expect_refusal(&fixture, &[invalid], Refusal::Value);
    }
    let by_name = hello_of(&fixture, |info| info.store = "main".into());
    Peer::connect(&fixture.socket).expect_welcome(&by_name);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_another_process_is_refused() {
    let (fixture, _node) = Fixture::with_node().await;
    let actor = Actor::client(&fixture);
    let foreign = hello(role(&fixture, actor.client));
    expect_refusal(&fixture, &[foreign], Refusal::Foreign);
    let status = Peer::observer(&fixture).status_of(actor.client).unwrap();
    assert!(status.connected);
    // A connection of the same process replaces the earlier one.
    let mut first = Peer::client(&fixture, 1);
    let _second = Peer::client(&fixture, 1);
    assert_eq!(first.receive(), None);
    let elsewhere = hello_of(&fixture, |info| info.namespace = "another".into());
    expect_refusal(&fixture, &[elsewhere], Refusal::Value);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_invalid_registration_is_refused() {
    let (fixture, _node) = Fixture::with_node().await;
    let valid = |number| registration(number, "lock", Duration::from_secs(30));
    let changes: [fn(&mut Registration); 9] = [
        |it| it.name = String::new(),
        |it| it.name = "a{b".into(),
        |it| it.name = "n".repeat(513),
        |it| it.ttl_ms = 0,
        |it| it.ttl_ms = 99,
        |it| it.ttl_ms = 86_400_001,
        |it| it.silence_timeout_ms = 0,
        |it| it.silence_timeout_ms = 30_001,
        // A lease holds one lock.
        |it| (it.number, it.name) = (1, "another".into()),
    ];
    for change in changes {
        let mut client = Peer::client(&fixture, 1);
        let mut invalid = valid(9);
        change(&mut invalid);
        let number = invalid.number;
        let refused = client.register([valid(1), invalid, valid(3)]);
        assert_eq!(refused, [(number, Refusal::Value)]);
    }
    assert_eq!(Peer::observer(&fixture).status_of(1).unwrap().leases, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_descriptor_that_is_not_a_process_is_refused() {
    let (fixture, _node) = Fixture::with_node().await;
    let mut client = Peer::client(&fixture, 1);
    client.send(&ToNode::Process);
    client.expect_refusal(Refusal::Process);
    let file = tempfile::tempfile().unwrap();
    for _ in 0..100 {
        let mut client = Peer::client(&fixture, 1);
        send_with_descriptors(&client.stream, &ToNode::Process, &[file.as_fd()]);
        client.expect_refusal(Refusal::Process);
    }
    assert_eq!(Peer::observer(&fixture).status_of(1), None);
    // Descriptors that do not belong to a message are closed. The node is in this process, as are other tests.
    let name = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    let copies = || {
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let names = open.filter_map(|descriptor| std::fs::read_link(descriptor.path()).ok());
        names.filter(|other| *other == name).count()
    };
    let mut client = Peer::client(&fixture, 2);
    for _ in 0..100 {
        send_with_descriptors(&client.stream, &ToNode::Heartbeat, &[file.as_fd(); 3]);
    }
    assert!(!client.status().is_empty());
    assert!(copies() < 20, "{}", copies());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_id_of_a_lease_does_not_authenticate_its_client() {
    let (fixture, _node) = Fixture::with_node().await;
    // The holder has no watchdog. Every user of the store can read the id of its lease.
    fixture.acquire(7, 1, "lock", LONG).await;
    let public = client_id(7).to_bytes();
    // The death of a process that has registered the lease by its public id releases nothing.
    let mut thief = Actor::client_with(&fixture, u128::from_be_bytes(public), |_| {});
    thief.register(1, "lock", LONG);
    thief.kill();
    let mut observer = Peer::observer(&fixture);
    eventually(SOON, || observer.status_of(thief.client).is_none());
    assert!(fixture.is_held(7, 1, "lock").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_a_forbidden_namespace_is_refused() {
    let uid = rustix::process::geteuid().as_raw();
    let allow = [
        format!("user:{uid}=ci,jobs"),
        "group:4000000000=test".into(),
    ];
    let allow = allow.map(|text| Permission::parse(&text).unwrap());
    let (fixture, _node) = Fixture::with_settings(|it| it.allow = allow.into()).await;
    let forbidden = hello(role(&fixture, 1));
    expect_refusal(&fixture, &[forbidden], Refusal::Namespace);
    let allowed = hello_of(&fixture, |info| info.namespace = "jobs".into());
    Peer::connect(&fixture.socket).expect_welcome(&allowed);
}
