//! Whatever is said to a node, its memory stays bounded and others feel nothing.

use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use leasehold::__private::frame::encode;
use leasehold::__private::wire::{Changes, Liveness, Role, ToNode};

use crate::actor::Actor;
use crate::fixture::Fixture;
use crate::raw::{Raw, client_id, hello, registration, role};

const SEED: u64 = 20_261_121;
/// How many connections there are in a round: more rounds by `LEASEHOLD_TEST_ROUNDS`.
const CONNECTIONS: u32 = 2_000;
const FRAMES: u32 = 25;

/// How much more memory it may have afterwards, in KiB.
const GROWTH_MAX: u64 = 40 * 1024;

/// The memory of a process, in KiB.
fn memory(actor: &Actor) -> u64 {
    let status = format!("/proc/{}/status", actor.pid().as_raw_nonzero());
    let status = fs::read_to_string(status).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let mut words = line.unwrap().split_whitespace();
    words.nth(1).unwrap().parse().unwrap()
}

/// A word that makes sense by itself.
fn word(fixture: &Fixture, random: &mut fastrand::Rng) -> ToNode {
    let client = random.u128(1_000..1_050);
    match random.u8(0..9) {
        0 => hello(Role::Observer),
        1 => hello(role(fixture, client)),
        2 => ToNode::Heartbeat,
        3 => ToNode::Process,
        4 => ToNode::Disconnect,
        5 => ToNode::LeaseQuery {
            client: client_id(client).to_bytes(),
            number: random.u64(..),
        },
        6 => ToNode::Status,
        _ => ToNode::Changes(Changes {
            batch: random.u64(0..50),
            register: (0..random.u64(0..40))
                .map(|number| registration(number, "flood/lock", random.u32(0..100_000)))
                .collect(),
            unregister: (0..random.u64(0..9)).collect(),
        }),
    }
}

/// A frame, which may be damaged.
fn frame(fixture: &Fixture, random: &mut fastrand::Rng) -> Vec<u8> {
    let mut frame = encode(&word(fixture, random)).unwrap();
    match random.u8(0..12) {
        0 => frame.truncate(random.usize(0..frame.len())),
        1 => {
            let place = random.usize(0..frame.len());
            frame[place] ^= 1 << random.u8(0..8);
        }
        2 => frame[..4].copy_from_slice(&random.u32(..).to_be_bytes()),
        3 => frame = (0..random.usize(0..2_000)).map(|_| random.u8(..)).collect(),
        // The longest that is allowed, with nothing in it.
        4 => {
            frame = 65_536_u32.to_be_bytes().to_vec();
            frame.push(1);
            frame.resize(random.usize(5..65_540), 0);
        }
        // Said twice.
        5 => frame = [frame.clone(), frame].concat(),
        _ => {}
    }
    frame
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_nonsense_is_nobody_elses_matter() {
    let fixture = Fixture::make().await;
    let node = Actor::node(&fixture);
    let witness = fixture.holder("witness", Duration::from_secs(600)).await;
    assert_eq!(witness.asks("beats 20"), "ok");
    let mut observer = Raw::observer(&fixture);
    let mut random = fastrand::Rng::with_seed(SEED);
    let before = memory(&node);
    let mut highest = before;
    // Some stay connected and say no more.
    let mut idle = std::collections::VecDeque::new();
    let rounds = std::env::var("LEASEHOLD_TEST_ROUNDS").ok();
    let rounds: u32 = rounds.map_or(1, |rounds| rounds.parse().unwrap());
    for connection in 0..CONNECTIONS * rounds {
        let mut stream = UnixStream::connect(&fixture.socket).unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut said: Vec<u8> = Vec::new();
        if random.bool() {
            let client = random.u128(1_000..1_050);
            let client = hello(role(&fixture, client));
            said.extend(encode(&client).unwrap());
        }
        for _ in 0..FRAMES {
            said.extend(frame(&fixture, &mut random));
        }
        // What is sent away may not take all of it.
        let _ = stream.write_all(&said);
        idle.push_back(stream);
        if idle.len() > 60 {
            idle.pop_front();
        }
        if connection % 100 == 0 {
            let status = observer.status_of(witness.client).unwrap();
            assert_eq!(status.condition, Liveness::Alive);
            highest = highest.max(memory(&node));
        }
    }
    println!("{before} KiB before, {highest} KiB at most");
    assert!(
        highest < before + GROWTH_MAX,
        "{before} KiB, then {highest} KiB"
    );
    assert!(fixture.held(witness.client, 1, "witness").await.is_some());
    witness.signal(rustix::process::Signal::KILL);
    fixture.is_free("witness").await;
}

/// A peer that asks and asks, and reads no answer, is not heard any more and sent away in the end; one that
/// is owed a little is not.
#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_read_is_sent_away() {
    let fixture = Fixture::make().await;
    let node = Actor::node(&fixture);
    let mut quiet = Raw::client(&fixture, 1);
    quiet.says(&ToNode::Status);
    let mut greedy = Raw::client(&fixture, 2);
    let before = memory(&node);
    greedy
        .stream
        .set_write_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let asks = encode(&ToNode::Status).unwrap().repeat(1_000);
    let mut said = 0;
    // Until it is not heard any more.
    while greedy.stream.write_all(&asks).is_ok() {
        said += 1;
        assert!(said < 100_000, "it hears everything");
    }
    assert!(memory(&node) < before + 2 * 1024);
    let mut observer = Raw::observer(&fixture);
    leasehold_testkit::eventually(crate::fixture::SOON, || {
        !observer.status_of(2).is_some_and(|status| status.connected)
    });
    assert!(observer.status_of(1).unwrap().connected);
    // Whether the other was there already when it asked is not known.
    let said = quiet.status();
    assert!(
        said.iter()
            .any(|status| status.client == client_id(1).to_bytes())
    );
}
