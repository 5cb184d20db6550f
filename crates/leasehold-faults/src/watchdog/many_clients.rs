//! Many clients with many leases on one node.

use std::thread;
use std::time::{Duration, Instant};

use leasehold_testkit::{eventually, memory, within};

use super::contended_lock::HolderOptions;
use super::world::{Node, TIMEOUT, World, millis};
use crate::clock;
use crate::holder::{KeepConfig, Workload};
use crate::holder_process::HolderProcess;
use crate::scenario::{Outcome, Run};

/// The numbers of processes, of clients in each and of locks of each client.
struct Size {
    processes: usize,
    clients: usize,
    locks: usize,
    ttl: Duration,
    /// For how long the node is measured while all clients are healthy.
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

/// Returns the number of records. Other keys of a lock have a suffix.
const COUNT_RECORDS: &str = "return #redis.call('KEYS', 'leasehold:{default:many*}')";

impl Size {
    fn leases(&self) -> usize {
        self.processes * self.clients * self.locks
    }
}

pub(super) fn many_clients(run: &Run) -> Outcome {
    let short = run.form.is_short();
    let size = if short { SHORT } else { FULL };
    let world = World::new();
    let node = world.node("node");
    let mut outcome = Outcome {
        runs: 1,
        ..Outcome::default()
    };
    let mut holders = start(&world, &node, &size);
    measure(&node, &size, short, &mut outcome);
    holders.iter_mut().for_each(HolderProcess::stop);
    observe_stopped(&world, &node, &size, &mut outcome);
    holders.iter_mut().for_each(HolderProcess::resume);
    for holder in &mut holders {
        let expected = size.clients * size.locks;
        let mut last = [0; 3];
        let known = within(TIMEOUT, || {
            last = count(holder);
            last[0] == expected || last[2] > 0
        });
        if !known || last[2] > 0 {
            outcome.miss(format!(
                "[held, jeopardy, lost] is {last:?} of {expected} in a process"
            ));
        }
    }
    outcome
}

/// Starts all processes, and waits until they hold all their locks and the node knows all leases.
fn start(world: &World, node: &Node, size: &Size) -> Vec<HolderProcess> {
    let options = HolderOptions::watched(size.ttl, &[node]);
    let mut holders = Vec::new();
    for number in 0..size.processes {
        let name = format!("many{number}");
        let keep = KeepConfig {
            clients: size.clients,
            locks: size.locks,
            again: false,
            quiet: true,
        };
        let config = options.config(world, &name, Workload::Keep(keep));
        let holder = HolderProcess::start(&world.recording.journal, &config);
        eventually(TIMEOUT, || {
            thread::sleep(millis(50));
            count(&holder)[0] == size.clients * size.locks
        });
        holders.push(holder);
    }
    eventually(TIMEOUT, || {
        let clients = node.clients();
        let leases = clients.iter().map(|client| client.leases as usize);
        leases.sum::<usize>() == size.leases()
    });
    holders
}

/// Measures the node while all clients are healthy.
fn measure(node: &Node, size: &Size, short: bool, outcome: &mut Outcome) {
    let (before, start) = (processor_time(node), Instant::now());
    thread::sleep(size.healthy);
    let used = processor_time(node).saturating_sub(before);
    let processor = 100.0 * used.as_secs_f64() / start.elapsed().as_secs_f64();
    let memory = memory_mib(node, "VmRSS");
    outcome.note(format!(
        "{} connections, {} leases, all healthy: {memory:.1} MiB, {processor:.2} % of a core",
        size.processes * size.clients,
        size.leases(),
    ));
    if !short && memory >= MEMORY_MAX_MIB {
        outcome.miss(format!("{memory:.1} MiB"));
    }
    if !short && processor >= PROCESSOR_MAX {
        outcome.miss(format!("{processor:.2} % of a core"));
    }
}

/// Checks that all records stay while all holders are stopped for longer than their ttl.
fn observe_stopped(world: &World, node: &Node, size: &Size, outcome: &mut Outcome) {
    let before = processor_time(node);
    let leases = size.leases();
    let duration = size.ttl + size.ttl / 3;
    let end = Instant::now() + duration;
    let mut reads = 0;
    while Instant::now() < end {
        let kept = world.server.cli(&["EVAL", COUNT_RECORDS, "0"]);
        reads += 1;
        if kept != leases.to_string() {
            outcome.miss(format!("{kept} of {leases} leases while all are stopped"));
        }
        thread::sleep(millis(250));
    }
    let used = processor_time(node).saturating_sub(before);
    let memory = memory_mib(node, "VmHWM");
    outcome.note(format!(
        "all stopped for {duration:.0?}: at most {memory:.1} MiB, {used:.1?} of a core; records read {reads} times"
    ));
}

/// The numbers of leases of a process that are held, in jeopardy and lost.
fn count(holder: &HolderProcess) -> [usize; 3] {
    let counts = holder.helper.request("count");
    let mut counts = counts.split(' ').map(|count| count.parse().unwrap());
    [(); 3].map(|()| counts.next().unwrap())
}

/// How long the node has run on a processor.
fn processor_time(node: &Node) -> Duration {
    Duration::from_nanos(clock::cpu_time(&node.helper.pid().to_string()))
}

/// A number about the node's memory.
fn memory_mib(node: &Node, name: &str) -> f64 {
    memory(node.helper.pid(), name).unwrap() as f64 / f64::from(1 << 20)
}
