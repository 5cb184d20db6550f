//! Nodes that are killed, stopped and cut off, while their clients are stopped and resumed at random.

use std::thread;

use leasehold_testkit::{Certs, Proxy, Way, eventually, free_port, within};
use tokio_util::sync::CancellationToken;

use super::contended_lock::HolderOptions;
use super::paused_holder::{PausedHolder, TTL};
use super::world::{Node, TIMEOUT, World, millis};
use crate::clock::{self, MILLI, Nanos};
use crate::history::{Fault, FaultEvent, Note};
use crate::holder::Nodes;
use crate::scenario::{Outcome, Run};

/// The number of holders.
const HOLDERS: usize = 20;
const HOLDERS_SHORT: usize = 6;

/// How long a running client may take to register with a restarted node: it tries every two seconds at least.
const REGISTERED_WITHIN: Nanos = 4000 * MILLI;

/// The token of clients, for nodes that are reached over TCP.
const TOKEN: &str = "a-token-of-the-campaign";

/// Injects a fault of nodes so many times while holders are stopped and resumed, and checks the history.
fn under_load(world: &World, nodes: Nodes, run: &Run, mut inject: impl FnMut()) -> Outcome {
    let mut outcome = Outcome::default();
    let options = HolderOptions {
        ttl: TTL,
        nodes,
        again: true,
    };
    let holders = PausedHolder::start_many(world, holders(run), &options);
    let end = CancellationToken::new();
    let counts: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> = holders
            .into_iter()
            .map(|holder| scope.spawn(|| holder.run(&end)))
            .collect();
        // Also if a fault cannot be injected.
        let end_holders = end.clone().drop_guard();
        for _ in 0..run.count {
            inject();
            outcome.runs += 1;
        }
        drop(end_holders);
        running
            .into_iter()
            .map(|holder| holder.join().unwrap())
            .collect()
    });
    let pauses: usize = counts.iter().map(|counts| counts.pauses).sum();
    let lost: usize = counts.iter().map(|counts| counts.lost).sum();
    outcome.note(format!("{pauses} stops of holders, {lost} leases lost"));
    world.check(run, true, &mut outcome);
    outcome
}

fn holders(run: &Run) -> usize {
    match run.form.is_short() {
        true => HOLDERS_SHORT,
        false => HOLDERS,
    }
}

/// The addresses of nodes on this machine.
fn local(nodes: &[Node; 2]) -> Nodes {
    Nodes {
        addresses: nodes.iter().map(Node::address).collect(),
        tls: None,
    }
}

/// Sleeps for a random time.
fn sleep_between(from_ms: u64, to_ms: u64) {
    thread::sleep(millis(fastrand::u64(from_ms..to_ms)));
}

/// Waits until a node watches all holders: only then may the other fail.
fn watches_all(node: &Node, holders: usize) {
    eventually(TIMEOUT, || {
        let clients = node.clients();
        let watched = clients
            .iter()
            .filter(|client| client.connected && client.leases > 0);
        watched.count() >= holders
    });
}

/// Injects a fault of one node at a time: first of the one, and when that watches all clients again, of the other.
fn one_of_two(run: &Run, mut inject: impl FnMut(&mut Node)) -> Outcome {
    let world = World::new();
    let mut nodes = [world.node("one"), world.node("two")];
    let mut number = 0;
    let addresses = local(&nodes);
    under_load(&world, addresses, run, || {
        if number == run.count / 2 {
            watches_all(&nodes[0], holders(run));
        }
        inject(&mut nodes[usize::from(number >= run.count / 2)]);
        number += 1;
        sleep_between(300, 1000);
    })
}

pub(super) fn node_killed(run: &Run) -> Outcome {
    one_of_two(run, |node| {
        node.helper.kill();
        sleep_between(50, 500);
        node.restart();
    })
}

pub(super) fn node_restarted(run: &Run) -> Outcome {
    one_of_two(run, |node| {
        node.end();
        node.restart();
    })
}

pub(super) fn node_stopped(run: &Run) -> Outcome {
    one_of_two(run, |node| {
        node.helper.stop();
        sleep_between(200, 3000);
        node.helper.resume();
    })
}

pub(super) fn nodes_killed(run: &Run) -> Outcome {
    let world = World::new();
    let mut nodes = [world.node("one"), world.node("two")];
    under_load(&world, local(&nodes), run, || {
        let from = clock::now();
        for node in &mut nodes {
            node.helper.kill();
        }
        sleep_between(50, 300);
        for node in &mut nodes {
            node.restart();
        }
        let time = (from, clock::now() + REGISTERED_WITHIN);
        let event = FaultEvent::new(Fault::KillNodes, None, time, time);
        world.recording.journal.record(&Note::Fault(event));
        sleep_between(3000, 5000);
    })
}

/// Cuts a connection off for a random time.
fn cut_off(proxy: &Proxy) {
    if fastrand::bool() {
        proxy.swallow(Way::Both);
        sleep_between(300, 3000);
    } else {
        proxy.refuse();
        proxy.cut();
        sleep_between(100, 2000);
    }
    proxy.go_on();
    // A connection that has lost something is useless.
    proxy.cut();
    sleep_between(300, 1000);
}

pub(super) fn client_node_partition(run: &Run) -> Outcome {
    let world = World::new();
    let certs = Certs::make();
    let remote = |name: &str| {
        let port = free_port();
        let mut config = world.node_config(name);
        config.listen.push(format!("tcp://127.0.0.1:{port}"));
        let (cert, key) = (certs.server.clone(), certs.server_key.clone());
        config.tls = Some((cert, key, TOKEN.to_owned()));
        (Node::start(config), port)
    };
    let ((_near, near), (far, behind)) = (remote("near"), remote("far"));
    let proxy = Proxy::before_port(behind);
    let nodes = Nodes {
        addresses: [near, proxy.port()]
            .map(|port| format!("tcp://127.0.0.1:{port}"))
            .to_vec(),
        tls: Some((certs.ca.clone(), TOKEN.to_owned())),
    };
    let mut outcome = under_load(&world, nodes, run, || cut_off(&proxy));
    let sleeps = within(TIMEOUT, || far.helper.state() == Some('S'));
    if !sleeps || proxy.stats().connections <= outcome.runs {
        outcome.miss("clients did not reconnect to the node that was cut off");
    }
    outcome
}

pub(super) fn node_store_partition(run: &Run) -> Outcome {
    let world = World::new();
    let proxy = Proxy::before(&world.server);
    let mut config = world.node_config("cut");
    config.url = proxy.url();
    config.store = Some(world.client.store().to_string());
    let cut = Node::start(config);
    let nodes = [cut, world.node("whole")];
    under_load(&world, local(&nodes), run, || cut_off(&proxy))
}
