//! Peers that send invalid input, too much of it, or read nothing.

use std::collections::VecDeque;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use leasehold::__private::frame::encode;
use leasehold::__private::wire::{Liveness, ToClient, ToNode};
use leasehold_testkit::{Helper, eventually, memory};
use rustix::process::Signal;

use crate::actor;
use crate::fixture::{Fixture, LONG, SOON};
use crate::peer::{Peer, changes, hello, registration, role};

const SEED: u64 = 20_261_121;
const CONNECTIONS: u32 = 2_000;

/// How much the memory of the node may grow, in bytes.
const GROWTH_MAX: u64 = 40 * 1024 * 1024;

/// A limit on open files that no test reaches.
const FILES: u32 = 1_024;

/// The resident memory of a process in bytes.
fn resident(process: &Helper) -> u64 {
    memory(process.pid(), "VmRSS").unwrap()
}

/// The messages of a client. In half of them, a byte is damaged.
fn input(fixture: &Fixture, random: &mut fastrand::Rng) -> Vec<u8> {
    let client = random.u128(1_000..1_050);
    let lease = |number| registration(number, "flood/lock", LONG);
    let leases = (0..random.u64(0..40)).map(lease).collect();
    let messages = [
        hello(role(fixture, client)),
        changes(1, leases),
        ToNode::Status,
    ];
    let mut input = messages.map(|it| encode(&it).unwrap()).concat();
    if random.bool() {
        let damaged = random.usize(0..input.len());
        input[damaged] = random.u8(..);
    }
    input
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_invalid_input_is_contained() {
    let fixture = Fixture::new().await;
    let node = actor::node(&fixture, FILES);
    let mut other = fixture.holder("other", LONG).await;
    let mut random = fastrand::Rng::with_seed(SEED);
    let before = resident(&node);
    let mut highest = before;
    // Some stay connected and send nothing more.
    let mut idle = VecDeque::new();
    for connection in 0..CONNECTIONS {
        let mut stream = UnixStream::connect(&fixture.socket).unwrap();
        stream.set_nonblocking(true).unwrap();
        // A node that has ended the connection does not take all of it.
        let _ = stream.write_all(&input(&fixture, &mut random));
        idle.push_back(stream);
        if idle.len() > 60 {
            idle.pop_front();
        }
        if connection % 100 == 0 {
            let status = other.peer.status_of(other.client).unwrap();
            assert_eq!(status.liveness, Liveness::Alive);
            highest = highest.max(resident(&node));
        }
    }
    assert!(highest < before + GROWTH_MAX, "{before}, then {highest}");
    assert!(fixture.is_held(other.client, 1, "other").await);
    other.signal(Signal::KILL);
    fixture.wait_until_free("other").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_sends_requests_and_reads_no_replies_is_disconnected() {
    let fixture = Fixture::new().await;
    let node = actor::node(&fixture, FILES);
    let mut idle = Peer::client(&fixture, 1);
    idle.send(&ToNode::Status);
    let mut greedy = Peer::client(&fixture, 2);
    let before = resident(&node);
    send_until_full(&mut greedy);
    assert!(resident(&node) < before + 2 * 1024 * 1024);
    let mut observer = Peer::observer(&fixture);
    eventually(SOON, || {
        !observer.status_of(2).is_some_and(|status| status.connected)
    });
    // A peer with one unread reply stays connected.
    assert!(observer.status_of(1).unwrap().connected);
    assert!(idle.status_of(1).is_some());
}

/// Sends requests and reads no replies, until the node reads no further request.
fn send_until_full(peer: &mut Peer<UnixStream>) {
    let timeout = Some(Duration::from_millis(200));
    peer.stream.set_write_timeout(timeout).unwrap();
    let requests = encode(&ToNode::Status).unwrap().repeat(1_000);
    let mut written = 0;
    while peer.stream.write_all(&requests).is_ok() {
        written += 1;
        assert!(written < 100_000, "the node reads all requests");
    }
}

/// Its last message is behind those that the peer has not read.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_does_not_wait_for_a_peer_that_reads_nothing() {
    let (fixture, node) = Fixture::with_node().await;
    let mut greedy = Peer::client(&fixture, 1);
    send_until_full(&mut greedy);
    let mut other = Peer::client(&fixture, 2);
    let begun = Instant::now();
    let notified = tokio::task::spawn_blocking(move || {
        let message = other.receive();
        (message, begun.elapsed(), other.receive())
    });
    node.stop().await;
    let stopped = begun.elapsed();
    let (message, notified, end) = notified.await.unwrap();
    assert_eq!((message, end), (Some(ToClient::Closing), None));
    // The last message is bounded by a second.
    assert!(
        notified < stopped && stopped < SOON,
        "{notified:?}, {stopped:?}"
    );
    // Whatever it reads later are whole messages, and the end.
    let mut replies = 0;
    while let Some(message) = greedy.receive() {
        assert!(
            matches!(message, ToClient::Status { .. } | ToClient::Closing),
            "{message:?}"
        );
        replies += 1;
    }
    assert!(replies > 0);
}
