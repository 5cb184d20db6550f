//! A node with many clients and leases: what it takes, and whether it is in time.

use std::fs;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use leasehold::__private::wire::{Changes, ToClient, ToNode};
use leasehold::store::Request;
use leasehold_core::{Op, TokenCount, Ttl};
use leasehold_testkit::eventually;

use crate::actor::Actor;
use crate::fixture::{Fixture, key, lease};
use crate::raw::{Raw, client_id, registration};

/// A tenth of what a node has to bear, so that any machine can.
const CLIENTS: u64 = 100;
const LEASES: u64 = 100;

const TTL: Duration = Duration::from_secs(30);

/// How much memory a lease may take, with its part of its client and connection, in bytes.
const LEASE_MAX: u64 = 1_000;

/// The memory of a process, in bytes.
fn memory(node: &Actor) -> u64 {
    let status = format!("/proc/{}/status", node.pid().as_raw_nonzero());
    let status = fs::read_to_string(status).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let mut words = line.unwrap().split_whitespace();
    words.nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// The time that a process has worked.
fn worked(node: &Actor) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{}/stat", node.pid().as_raw_nonzero())).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks = fields.split(' ').skip(11).take(2);
    let ticks: u32 = ticks.map(|ticks| ticks.parse::<u32>().unwrap()).sum();
    Duration::from_millis(10) * ticks
}

fn name(client: u64, number: u64) -> String {
    format!("load/{client}/{number}")
}

async fn acquire_all(fixture: &Fixture) {
    for client in 0..CLIENTS {
        let requests = (0..LEASES).map(|number| {
            Request::new(
                key(&name(client, number)),
                Op::Acquire {
                    lease: lease(client.into(), number),
                    count: NonZeroU32::MIN,
                    ttl: Ttl::checked(TTL * 4).unwrap(),
                    tokens: TokenCount::MIN,
                    wait: false,
                },
            )
        });
        assert_eq!(
            fixture.store.apply(requests.collect()).await.len() as u64,
            LEASES
        );
    }
}

/// Registers all leases of a client.
fn register_all(client: &mut Raw<std::os::unix::net::UnixStream>, id: u64) {
    let ttl = u32::try_from(TTL.as_millis()).unwrap();
    let register = (0..LEASES).map(|number| registration(number, &name(id, number), ttl));
    let answer = client.asks(&ToNode::Changes(Changes {
        batch: 0,
        register: register.collect(),
        unregister: vec![],
    }));
    let refused = vec![];
    assert_eq!(answer, Some(ToClient::Acknowledged { batch: 0, refused }));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_clients_cost_little_and_are_all_found_silent_in_time() {
    let fixture = Fixture::make().await;
    let node = Actor::node(&fixture);
    acquire_all(&fixture).await;
    let before = memory(&node);
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|id| Raw::client(&fixture, id.into()))
        .collect();
    for (client, id) in clients.iter_mut().zip(0..) {
        register_all(client, id);
    }
    let each = memory(&node).saturating_sub(before) / (CLIENTS * LEASES);
    // All say that they live, as often as they do with this ttl.
    let start = (Instant::now(), worked(&node));
    for _ in 0..2 {
        for client in &mut clients {
            client.says(&ToNode::Heartbeat);
        }
        tokio::time::sleep(TTL / 6).await;
    }
    let part = (worked(&node) - start.1).as_secs_f64() / start.0.elapsed().as_secs_f64();
    println!(
        "{each} bytes for each lease, {:.2} % of a core",
        part * 100.0
    );
    assert!(each < LEASE_MAX, "{each} bytes");
    // And then nobody does.
    let silent = Instant::now();
    let mut observer = Raw::observer(&fixture);
    let kept = |observer: &mut Raw<_>, client: u64, number| {
        let client = client_id(client.into()).to_bytes();
        observer.asks(&ToNode::LeaseQuery { client, number }) != Some(ToClient::LeaseStatus(None))
    };
    for client in 0..CLIENTS {
        for number in (0..LEASES).step_by(9) {
            eventually(TTL, || kept(&mut observer, client, number));
        }
    }
    let took = silent.elapsed();
    println!("all renewed {took:?} after the last word, of {TTL:?}");
    assert!(took < TTL * 2 / 3, "{took:?}");
}
