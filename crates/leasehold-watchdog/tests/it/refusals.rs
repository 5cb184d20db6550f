//! Whoever may not, or makes no sense, is sent away with the reason.

use std::io::Write as _;
use std::time::Duration;

use leasehold::__private::frame::encode;
use leasehold::__private::wire::{
    Changes, ClientSecret, Refusal, Registration, Role, ToClient, ToNode,
};
use leasehold_testkit::eventually;
use leasehold_watchdog::{Node, Permission, Settings};

use crate::actor::Actor;
use crate::fixture::{Fixture, SOON};
use crate::raw::{Raw, client_id, hello, introduction, registration, role, secret};

fn changes(batch: u64, register: Vec<Registration>) -> ToNode {
    ToNode::Changes(Changes {
        batch,
        register,
        unregister: vec![],
    })
}

/// Says these words, of which the last is refused.
#[track_caller]
fn refused(fixture: &Fixture, words: &[ToNode], refusal: Refusal) {
    let mut raw = Raw::connect(&fixture.socket);
    for word in words {
        raw.says(word);
    }
    loop {
        match raw.hears() {
            Some(ToClient::Refused(said)) => {
                assert_eq!(said, refusal);
                break;
            }
            Some(_) => {}
            None => panic!("sent away without a reason"),
        }
    }
    assert_eq!(raw.hears(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn words_at_the_wrong_time_are_refused() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let client = || hello(role(&fixture, 1));
    let observer = || hello(Role::Observer);
    let batch = |number| changes(number, vec![]);
    for words in [
        vec![ToNode::Heartbeat],
        vec![ToNode::Status],
        vec![batch(0)],
        vec![ToNode::Disconnect],
        vec![observer(), observer()],
        vec![observer(), client()],
        vec![observer(), ToNode::Heartbeat],
        vec![observer(), batch(0)],
        vec![observer(), ToNode::Process],
        vec![client(), client()],
        // Said again, and out of order.
        vec![client(), batch(3), batch(3)],
        vec![client(), batch(3), batch(4), batch(2)],
    ] {
        refused(&fixture, &words, Refusal::Word);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_is_refused() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let whole = encode(&hello(Role::Observer)).unwrap();
    let mut other_version = whole.clone();
    other_version[4] = 9;
    let mut too_long_by_one = whole.clone();
    too_long_by_one[3] += 1;
    too_long_by_one.push(0);
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 100],
        vec![0; 4],
        vec![0, 0, 0, 2, 1, 99],
        other_version,
        too_long_by_one,
    ] {
        let mut raw = Raw::connect(&fixture.socket);
        raw.stream.write_all(&bytes).unwrap();
        assert_eq!(raw.hears(), Some(ToClient::Refused(Refusal::Word)));
        assert_eq!(raw.hears(), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_be_is_refused() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let mut unknown = introduction(&fixture);
    unknown.store = "redis://elsewhere:6379/0".into();
    refused(
        &fixture,
        &[hello(Role::Client(secret(1), unknown))],
        Refusal::Store,
    );
    for (namespace, tenant) in [("", "default"), ("test", "a:b"), ("{", "default")] {
        let mut wrong = introduction(&fixture);
        (wrong.namespace, wrong.tenant) = (namespace.into(), tenant.into());
        refused(
            &fixture,
            &[hello(Role::Client(secret(1), wrong))],
            Refusal::Value,
        );
    }
    let mut by_name = introduction(&fixture);
    by_name.store = "main".into();
    Raw::connect(&fixture.socket).welcomed(hello(Role::Client(secret(1), by_name)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_another_process_is_refused() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let actor = Actor::introduced(&fixture);
    let theirs = hello(role(&fixture, actor.client));
    refused(&fixture, &[theirs], Refusal::Foreign);
    // Nothing has become of it.
    assert!(
        Raw::observer(&fixture)
            .status_of(actor.client)
            .unwrap()
            .connected
    );
    // Of the same process, another connection takes its place.
    let mut first = Raw::client(&fixture, 2);
    let _second = Raw::client(&fixture, 2);
    assert_eq!(first.hears(), None);
    // And elsewhere than it is, it cannot be.
    let mut elsewhere = introduction(&fixture);
    elsewhere.namespace = "another".into();
    refused(
        &fixture,
        &[hello(Role::Client(secret(2), elsewhere))],
        Refusal::Value,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_registered_is_refused_and_nothing_else() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let mut client = Raw::client(&fixture, 1);
    let fine = |number| registration(number, "fine", 30_000);
    let wrong = |change: fn(&mut Registration)| {
        let mut wrong = fine(9);
        change(&mut wrong);
        wrong
    };
    for wrong in [
        wrong(|wrong| wrong.name = String::new()),
        wrong(|wrong| wrong.name = "a{b".into()),
        wrong(|wrong| wrong.name = "n".repeat(513)),
        wrong(|wrong| wrong.ttl_ms = 0),
        wrong(|wrong| wrong.ttl_ms = 99),
        wrong(|wrong| wrong.ttl_ms = 86_400_001),
        wrong(|wrong| wrong.patience_ms = 0),
        wrong(|wrong| wrong.patience_ms = 30_001),
        // A lease holds one lock.
        wrong(|wrong| (wrong.number, wrong.name) = (1, "another".into())),
    ] {
        let mut client = Raw::client(&fixture, 1);
        let number = wrong.number;
        let answer = client.asks(&changes(1, vec![fine(1), wrong, fine(3)]));
        let refused = vec![(number, Refusal::Value)];
        assert_eq!(answer, Some(ToClient::Acknowledged { batch: 1, refused }));
    }
    assert_eq!(client.hears(), None);
    assert_eq!(Raw::observer(&fixture).status_of(1).unwrap().leases, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_process_is_refused() {
    use std::io::IoSlice;
    use std::mem::MaybeUninit;
    use std::os::fd::AsFd as _;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let no = Some(ToClient::Refused(Refusal::Process));
    let mut client = Raw::client(&fixture, 1);
    assert_eq!(client.asks(&ToNode::Process), no, "without a descriptor");
    assert_eq!(client.hears(), None);
    let file = tempfile::tempfile().unwrap();
    for _ in 0..100 {
        let mut client = Raw::client(&fixture, 1);
        let frame = encode(&ToNode::Process).unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [file.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let parts = [IoSlice::new(&frame)];
        sendmsg(&client.stream, &parts, &mut control, SendFlags::empty()).unwrap();
        assert_eq!(client.hears(), no, "with a file");
        assert_eq!(client.hears(), None);
    }
    assert_eq!(Raw::observer(&fixture).status_of(1), None);
    // Those that belong to no word are not kept.
    let mut flood = Raw::client(&fixture, 2);
    let before = open_files();
    for _ in 0..100 {
        let frame = encode(&ToNode::Heartbeat).unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [file.as_fd(); 3];
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let parts = [IoSlice::new(&frame)];
        sendmsg(&flood.stream, &parts, &mut control, SendFlags::empty()).unwrap();
    }
    assert!(!flood.status().is_empty());
    assert!(open_files() < before + 20);
}

/// The node is in this process.
fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_knows_the_id_of_a_lease_is_not_its_client() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let long = Duration::from_secs(600);
    // The holder has no watchdog, and its lease can be seen by everybody who may read the store.
    fixture.acquire(7, 1, "lock", long).await;
    let seen = client_id(7).to_bytes();
    for known in [
        [[0; 16], seen].concat(),
        [seen, [0; 16]].concat(),
        [seen, seen].concat(),
    ] {
        let known = ClientSecret::from_random(known.try_into().unwrap());
        let id = known.client_id();
        let mut thief = Raw::connect(&fixture.socket);
        thief.welcomed(hello(Role::Client(known, introduction(&fixture))));
        let answer = thief.asks(&changes(0, vec![registration(1, "lock", 600_000)]));
        assert!(
            matches!(answer, Some(ToClient::Acknowledged { .. })),
            "{answer:?}"
        );
        // It is another client.
        let mut observer = Raw::observer(&fixture);
        assert_eq!(observer.status_of(7), None);
        assert!(
            observer
                .status()
                .iter()
                .any(|status| status.client == id.to_bytes())
        );
        thief.says(&ToNode::Disconnect);
        assert_eq!(thief.hears(), None);
    }
    // A process that registers the lease by what it can see, and ends, is dead for itself only.
    let mut thief = Actor::start();
    let seen = u128::from_be_bytes(seen);
    let said = thief.hello(&fixture, seen, 1, &fixture.url);
    assert!(said.starts_with("Welcome"), "{said}");
    thief.registers(1, "lock", long);
    thief.end();
    let gone = || Raw::observer(&fixture).status_of(seen).is_none();
    eventually(SOON, gone);
    assert!(fixture.held(7, 1, "lock").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_register_a_namespace_is_refused() {
    let fixture = Fixture::make().await;
    let uid = rustix::process::geteuid().as_raw();
    let allow = [
        format!("user:{uid}=ci,jobs"),
        "group:4000000000=test".into(),
    ];
    let settings = Settings {
        allow: allow.map(|text| Permission::parse(&text).unwrap()).into(),
        ..fixture.settings()
    };
    let _node = Node::start(settings).await.unwrap();
    refused(&fixture, &[hello(role(&fixture, 1))], Refusal::Namespace);
    let mut allowed = introduction(&fixture);
    allowed.namespace = "jobs".into();
    Raw::connect(&fixture.socket).welcomed(hello(Role::Client(secret(1), allowed)));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_of_the_protocol_is_refused() {
    let fixture = Fixture::make().await;
    let _node = fixture.node().await;
    let mut earlier = Raw::connect(&fixture.socket);
    // Hello of an observer, in version 1.
    earlier.stream.write_all(&[0, 0, 0, 4, 1, 0, 0, 1]).unwrap();
    assert_eq!(earlier.hears(), Some(ToClient::Refused(Refusal::Word)));
    assert_eq!(earlier.hears(), None);
}
