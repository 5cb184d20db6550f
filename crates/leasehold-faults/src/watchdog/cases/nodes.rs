//! Nodes that die, stop and are cut off, while their clients are stopped and go on at random.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use leasehold_testkit::{Proxy, Way, free_port};

use super::super::actor::{PATIENCE, is_so_within, wait_for};
use super::super::certs::Certs;
use super::super::outcome::Outcome;
use super::super::world::{Node, Plan, TOKEN, World, millis};
use super::judge::{Gap, judge};
use super::seat::Seat;
use crate::clock::{self, MILLI, Nanos};

/// How many holders there are.
const SEATS: usize = 20;
const SEATS_SHORT: usize = 6;

/// How long a client that runs takes to register again with a node that is back: it tries every two
/// seconds at least.
const AGAIN: Nanos = 4000 * MILLI;

/// The load: how many times something happens to nodes, and to how many holders that matters.
struct Load<'a> {
    world: &'a World,
    /// How the holders reach the nodes.
    nodes: Vec<String>,
    /// Further arguments of the holders.
    more: Vec<String>,
    times: usize,
    seats: usize,
}

impl<'a> Load<'a> {
    fn new(world: &'a World, nodes: Vec<String>, times: usize, short: bool) -> Self {
        Self {
            world,
            nodes,
            more: Vec::new(),
            times,
            seats: if short { SEATS_SHORT } else { SEATS },
        }
    }

    /// Lets something happen so many times while the holders are stopped and go on, and judges what came of
    /// it. It answers from when until when somebody may have had no node.
    fn run(
        &self,
        mut happens: impl FnMut() -> Result<Option<Gap>, String>,
    ) -> Result<Outcome, String> {
        let mut outcome = Outcome::default();
        let started =
            (0..self.seats).map(|nth| Seat::start(self.world, nth, &self.nodes, &self.more));
        let mut seats = started.collect::<Result<Vec<_>, _>>()?;
        seats.iter_mut().try_for_each(Seat::ready)?;
        let (over, mut gaps) = (AtomicBool::new(false), Vec::new());
        let records = thread::scope(|scope| {
            let running: Vec<_> = seats
                .into_iter()
                .map(|seat| scope.spawn(|| seat.run(&over)))
                .collect();
            let mut ended = Ok(());
            for _ in 0..self.times {
                match happens() {
                    Ok(gap) => gaps.extend(gap),
                    Err(why) => {
                        ended = Err(why);
                        break;
                    }
                }
                outcome.times += 1;
            }
            over.store(true, Ordering::Relaxed);
            let records = running.into_iter().map(|seat| {
                let panicked = |_| Err("a seat ended in a panic".to_owned());
                seat.join().unwrap_or_else(panicked)
            });
            let records = records.collect::<Result<Vec<_>, _>>();
            ended.and(records)
        })?;
        let pauses: usize = records.iter().map(|record| record.pauses.len()).sum();
        let lost: usize = records.iter().map(|record| record.lost.len()).sum();
        outcome.note(format!(
            "{} holders, ttl 2 s, stopped {pauses} times for up to 5 s; {lost} leases lost",
            self.seats
        ));
        for record in &records {
            judge(record, &gaps, &mut outcome);
        }
        Ok(outcome)
    }
}

/// Two nodes on this machine.
fn two(world: &World) -> Result<[Node; 2], String> {
    Ok([world.node("one")?, world.node("two")?])
}

fn addresses(nodes: &[Node; 2]) -> Vec<String> {
    nodes.iter().map(Node::address).collect()
}

/// Waits for a time that is drawn.
fn rest(from_ms: u64, to_ms: u64) {
    thread::sleep(millis(fastrand::u64(from_ms..to_ms)));
}

/// Waits until a node looks after all holders: only then may the other be hurt.
fn knows_all(node: &Node, seats: usize) -> Result<(), String> {
    wait_for("a node does not get to know all", || {
        let clients = node.clients();
        let known = clients
            .iter()
            .filter(|client| client.connected && client.leases > 0);
        known.count() >= seats
    })
}

/// Hurts one node again and again, half of the times the first. Before it is the turn of the second, the
/// first knows all again.
fn one_of_two(
    times: usize,
    short: bool,
    mut hurt: impl FnMut(&mut Node) -> Result<(), String>,
) -> Result<Outcome, String> {
    let world = World::new()?;
    let mut nodes = two(&world)?;
    let load = Load::new(&world, addresses(&nodes), times, short);
    let (seats, mut time) = (load.seats, 0);
    load.run(|| {
        let second = time >= times / 2;
        if time == times / 2 {
            knows_all(&nodes[0], seats)?;
        }
        time += 1;
        hurt(&mut nodes[usize::from(second)])?;
        rest(300, 1000);
        Ok(None)
    })
}

pub(super) fn node_killed(times: usize, short: bool) -> Result<Outcome, String> {
    one_of_two(times, short, |node| {
        node.actor.kill()?;
        rest(50, 500);
        node.start_again()
    })
}

pub(super) fn node_restarted(times: usize, short: bool) -> Result<Outcome, String> {
    one_of_two(times, short, |node| {
        node.end()?;
        node.start_again()
    })
}

pub(super) fn node_stopped(times: usize, short: bool) -> Result<Outcome, String> {
    one_of_two(times, short, |node| {
        node.actor.stop()?;
        rest(200, 3000);
        node.actor.go_on()
    })
}

pub(super) fn nodes_killed(times: usize, short: bool) -> Result<Outcome, String> {
    let world = World::new()?;
    let mut nodes = two(&world)?;
    let load = Load::new(&world, addresses(&nodes), times, short);
    load.run(|| {
        let from = clock::now();
        for node in &mut nodes {
            node.actor.kill()?;
        }
        rest(50, 300);
        for node in &mut nodes {
            node.start_again()?;
        }
        let to = clock::now() + AGAIN;
        rest(3000, 5000);
        Ok(Some((from, to)))
    })
}

/// What becomes of the way to somebody.
fn cut_off(proxy: &Proxy) {
    if fastrand::bool() {
        proxy.swallow(Way::Both);
        rest(300, 3000);
    } else {
        proxy.refuse();
        proxy.cut();
        rest(100, 2000);
    }
    proxy.go_on();
    // What lost something is of no use any more.
    proxy.cut();
}

pub(super) fn client_node_partition(times: usize, short: bool) -> Result<Outcome, String> {
    let world = World::new()?;
    let certs = Arc::new(Certs::make(world.folder.path())?);
    let remote = |name: &str| {
        let port = free_port();
        let plan = Plan {
            tcp: Some((port, Arc::clone(&certs))),
            ..world.plan(name)
        };
        Node::start(plan).map(|node| (node, port))
    };
    let ((_near, near), (far, behind)) = (remote("near")?, remote("far")?);
    let proxy = Proxy::before_port(behind);
    let nodes = [near, proxy.port()].map(|port| format!("tcp://127.0.0.1:{port}"));
    let mut load = Load::new(&world, nodes.to_vec(), times, short);
    let ca = certs.cert.to_string_lossy();
    load.more = ["--ca", &ca, "--token", TOKEN].map(str::to_owned).to_vec();
    let mut outcome = load.run(|| {
        cut_off(&proxy);
        rest(300, 1000);
        Ok(None)
    })?;
    let seen = is_so_within(PATIENCE, || far.actor.state() == Some('S'));
    if !seen || proxy.tally().connections <= outcome.times {
        outcome.miss("the node that was cut off was not come back to");
    }
    Ok(outcome)
}

pub(super) fn node_store_partition(times: usize, short: bool) -> Result<Outcome, String> {
    let world = World::new()?;
    let proxy = Proxy::before(&world.server);
    let cut = Node::start(Plan {
        url: proxy.url(),
        store: Some(world.client.store().to_string()),
        ..world.plan("cut")
    })?;
    let nodes = [cut, world.node("whole")?];
    let load = Load::new(&world, addresses(&nodes), times, short);
    load.run(|| {
        cut_off(&proxy);
        rest(300, 1000);
        Ok(None)
    })
}
