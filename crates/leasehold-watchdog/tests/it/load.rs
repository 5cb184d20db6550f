//! A node with many clients and leases: its memory and processor time, and the time of its renewals.

use std::time::{Duration, Instant};

use leasehold::watchdog::wire::{Role, ToNode};
use leasehold_testkit::{Proxy, Way, eventually};
use leasehold_watchdog::Node;

use crate::actor::Actor;
use crate::fixture::{Fixture, LONG, SOON};
use crate::peer::{Peer, client_info, registration, secret};

/// A fifth of the leases for which a node is made, so that any machine can bear them.
const CLIENTS: u128 = 100;
const LEASES: u64 = 200;

const TTL: Duration = Duration::from_secs(30);

/// The maximum memory of a lease with its part of its client and connection, in bytes.
const LEASE_MAX: u64 = 1_000;

fn name(client: u128, number: u64) -> String {
    format!("load/{client}/{number}")
}

/// Registers all leases of a client.
fn register(
    client: &mut Peer<std::os::unix::net::UnixStream>,
    id: u128,
    count: u64,
    ttl: Duration,
) {
    let ttl = u32::try_from(ttl.as_millis()).unwrap();
    let registrations = (0..count).map(|number| registration(number, &name(id, number), ttl));
    assert_eq!(client.register(registrations), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_clients_cost_little_and_their_leases_are_renewed_in_time() {
    let fixture = Fixture::new().await;
    let node = Actor::node(&fixture, 1_024);
    for id in 0..CLIENTS {
        let leases = (0..LEASES).map(|number| (id, number, name(id, number)));
        fixture.acquire_all(leases, LONG).await;
    }
    let before = node.memory();
    let mut clients: Vec<_> = (0..CLIENTS).map(|id| Peer::client(&fixture, id)).collect();
    for (client, id) in clients.iter_mut().zip(0..) {
        register(client, id, LEASES, TTL);
    }
    let count = u64::try_from(CLIENTS).unwrap() * LEASES;
    let each = node.memory().saturating_sub(before) / count;
    // All send heartbeats, as often as they do with this ttl.
    let (start, cpu_time) = (Instant::now(), node.cpu_time());
    for _ in 0..2 {
        for client in &mut clients {
            client.send(&ToNode::Heartbeat);
        }
        tokio::time::sleep(TTL / 6).await;
    }
    let busy = (node.cpu_time() - cpu_time).as_secs_f64() / start.elapsed().as_secs_f64();
    let busy = busy * 100.0;
    println!("{each} bytes for each lease, {busy:.2} % of a core");
    assert!(each < LEASE_MAX, "{each} bytes");
    // Now all are silent.
    let silent = Instant::now();
    let mut observer = Peer::observer(&fixture);
    for id in 0..CLIENTS {
        for number in (0..LEASES).step_by(9) {
            eventually(TTL, || observer.is_renewed(id, number));
        }
    }
    let took = silent.elapsed();
    println!("all renewed {took:?} after the last heartbeat, of {TTL:?}");
    assert!(took < TTL * 2 / 3, "{took:?}");
}

/// An overloaded machine, or a store far away. Each client falls due by itself.
#[tokio::test(flavor = "multi_thread")]
async fn many_clients_are_renewed_in_time_if_every_reply_is_late() {
    const CLIENTS: u128 = 150;
    const LEASES: u64 = 20;
    const LATE: Duration = Duration::from_millis(300);
    const TTL: Duration = Duration::from_secs(20);
    let fixture = Fixture::new().await;
    let proxy = Proxy::before(&fixture.redis);
    let mut settings = fixture.settings();
    settings.stores[0].url = proxy.url();
    let _node = Node::start(settings).await.unwrap();
    let mut clients = Vec::new();
    for id in 0..CLIENTS {
        let leases = (0..LEASES).map(|number| (id, number, name(id, number)));
        fixture.acquire_all(leases, SOON * 10).await;
        let mut info = client_info(&fixture);
        info.store = "main".into();
        clients.push(Peer::with_role(&fixture, Role::Client(secret(id), info)));
    }
    proxy.delay(Way::Back, LATE..=LATE);
    let start = Instant::now();
    for (client, id) in clients.iter_mut().zip(0..) {
        register(client, id, LEASES, TTL);
        // Not all at the same time.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut observer = Peer::observer(&fixture);
    for id in 0..CLIENTS {
        for number in 0..LEASES {
            eventually(TTL * 3, || observer.is_renewed(id, number));
        }
    }
    let took = start.elapsed();
    println!("all renewed within {took:?}");
    assert!(took < TTL, "{took:?}");
}
