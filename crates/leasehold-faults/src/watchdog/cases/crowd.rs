//! Many clients with many leases on one node.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use super::super::actor::{PATIENCE, is_so_within, wait_for};
use super::super::holder::{Holder, Role};
use super::super::outcome::Outcome;
use super::super::said::Said;
use super::super::world::{Node, World, millis, record};

/// How large a crowd is.
struct Size {
    processes: usize,
    clients: usize,
    locks: usize,
    ttl: Duration,
    /// For how long the node is measured while all are healthy.
    healthy: Duration,
}

const FULL: Size = Size {
    processes: 5,
    clients: 200,
    locks: 100,
    ttl: millis(30_000),
    healthy: millis(60_000),
};

const SHORT: Size = Size {
    processes: 2,
    clients: 5,
    locks: 20,
    ttl: millis(6_000),
    healthy: millis(1_000),
};

const MEMORY_MAX_MIB: f64 = 100.0;
const PROCESSOR_MAX: f64 = 5.0;

/// How many records are looked at in one command.
const LOOK: usize = 1000;

impl Size {
    fn leases(&self) -> usize {
        self.processes * self.clients * self.locks
    }

    fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for process in 0..self.processes {
            for client in 0..self.clients {
                names.extend((0..self.locks).map(|lock| format!("crowd{process}-{client}-{lock}")));
            }
        }
        names
    }
}

pub(super) fn crowd(_: usize, short: bool) -> Result<Outcome, String> {
    let size = if short { SHORT } else { FULL };
    let world = World::new()?;
    let node = world.node("node")?;
    let mut outcome = Outcome {
        times: 1,
        ..Outcome::default()
    };
    let mut holders = gather(&world, &node, &size)?;
    measure(&node, &size, short, &mut outcome)?;
    for holder in &holders {
        holder.actor.stop()?;
    }
    let begin = used(&node)?;
    let names = size.names();
    let end = Instant::now() + size.ttl + size.ttl / 3;
    let mut looks = 0;
    while Instant::now() < end {
        let kept = count(&world, &names)?;
        looks += 1;
        if kept != size.leases() {
            outcome.miss(format!(
                "{kept} of {} leases while all are stopped",
                size.leases()
            ));
        }
        thread::sleep(millis(250));
    }
    let spent = used(&node)?.saturating_sub(begin);
    outcome.note(format!(
        "stopped for {:.0?}: {} records looked at {looks} times, {spent:.1?} of a processor in the node; \
         its largest memory {:.1} MiB",
        size.ttl + size.ttl / 3,
        size.leases(),
        memory(&node, "VmHWM")?,
    ));
    for holder in &holders {
        holder.actor.go_on()?;
    }
    for holder in &mut holders {
        let wanted = size.clients * size.locks;
        let mut last = (0, 0, 0);
        let so = is_so_within(PATIENCE, || {
            last = tally(holder).unwrap_or(last);
            last.0 == wanted || last.2 > 0
        });
        if !so || last.2 > 0 {
            outcome.miss(format!(
                "(held, jeopardy, lost) is {last:?} of {wanted} in a process"
            ));
        }
    }
    Ok(outcome)
}

/// Starts all processes, and waits until they hold all their locks and the node knows all.
fn gather(world: &World, node: &Node, size: &Size) -> Result<Vec<Holder>, String> {
    let nodes = [node.address()];
    let (clients, locks) = (size.clients.to_string(), size.locks.to_string());
    let mut holders = Vec::new();
    for process in 0..size.processes {
        let more = ["--clients", &clients, "--locks", &locks, "--quiet"];
        let role = Role {
            prefix: format!("crowd{process}"),
            ttl: size.ttl,
            nodes: &nodes,
            more: more.map(str::to_owned).to_vec(),
        };
        let mut holder = Holder::start(world, &role)?;
        wait_for("a crowd does not gather", || {
            thread::sleep(millis(50));
            tally(&mut holder).is_ok_and(|(held, ..)| held == size.clients * size.locks)
        })?;
        holders.push(holder);
    }
    wait_for("the node does not know all", || {
        let leases = node
            .clients()
            .iter()
            .map(|client| client.leases as usize)
            .sum::<usize>();
        leases == size.leases()
    })?;
    Ok(holders)
}

fn measure(node: &Node, size: &Size, short: bool, outcome: &mut Outcome) -> Result<(), String> {
    let (begin, start) = (used(node)?, Instant::now());
    thread::sleep(size.healthy);
    let spent = used(node)?.saturating_sub(begin);
    let processor = 100.0 * spent.as_secs_f64() / start.elapsed().as_secs_f64();
    let memory = memory(node, "VmRSS")?;
    let connections = size.processes * size.clients;
    outcome.note(format!(
        "{connections} connections from {} processes, {} leases, all healthy for {:.0?}: {memory:.1} MiB, \
         {processor:.2} % of a core",
        size.processes,
        size.leases(),
        size.healthy,
    ));
    if !short && memory >= MEMORY_MAX_MIB {
        outcome.miss(format!("{memory:.1} MiB"));
    }
    if !short && processor >= PROCESSOR_MAX {
        outcome.miss(format!("{processor:.2} % of a core"));
    }
    Ok(())
}

/// How many leases of a process are held, in jeopardy and lost.
fn tally(holder: &mut Holder) -> Result<(usize, usize, usize), String> {
    holder.actor.order("count")?;
    let said = holder.until(PATIENCE, |said| matches!(said, Said::Count { .. }))?;
    match said.last() {
        Some(Said::Count {
            held,
            jeopardy,
            lost,
        }) => Ok((*held, *jeopardy, *lost)),
        _ => Err("a holder did not count".into()),
    }
}

/// How many of the records are there.
fn count(world: &World, names: &[String]) -> Result<usize, String> {
    let mut connection = redis::Client::open(world.url())
        .and_then(|client| client.get_connection_with_timeout(PATIENCE))
        .map_err(|error| error.to_string())?;
    let mut kept = 0;
    for names in names.chunks(LOOK) {
        let mut exists = redis::cmd("EXISTS");
        for name in names {
            exists.arg(record(name));
        }
        let found: usize = exists
            .query(&mut connection)
            .map_err(|error| error.to_string())?;
        kept += found;
    }
    Ok(kept)
}

/// How long the node has run on a processor.
fn used(node: &Node) -> Result<Duration, String> {
    let path = format!("/proc/{}/task", node.actor.pid());
    let threads = fs::read_dir(path).map_err(|error| error.to_string())?;
    let of = |thread: fs::DirEntry| {
        let stat = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        stat.split_whitespace().next()?.parse::<u64>().ok()
    };
    Ok(Duration::from_nanos(threads.flatten().filter_map(of).sum()))
}

/// A figure of the node's memory.
#[expect(clippy::cast_precision_loss, reason = "kilobytes of a small process")]
fn memory(node: &Node, what: &str) -> Result<f64, String> {
    let path = format!("/proc/{}/status", node.actor.pid());
    let status = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let line = status.lines().find(|line| line.starts_with(what));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    Ok(kib.ok_or("no memory")? as f64 / 1024.0)
}
