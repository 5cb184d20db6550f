//! Scenarios of the watchdog: holders that are stopped and killed in many ways, nodes that are killed, stopped and cut
//! off.
//!
//! Servers, nodes and holders are processes of their own; the waiters for the locks are in this one.

mod contended_lock;
mod deaths;
mod many_clients;
mod nodes;
mod outcome;
mod paused_holder;
mod pauses;
mod pid_reuse;
mod world;

use std::thread;

pub(crate) use self::outcome::Row;

use self::outcome::Outcome;
use crate::scenario::{Form, caught};

/// A scenario.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    description: &'static str,
    aim: &'static str,
    /// Whether the latencies have the limits of a death.
    limited: bool,
    /// The number of runs, and that of the short form.
    runs: usize,
    short: usize,
    /// Scenarios of one group run side by side.
    group: u8,
    /// Runs it so many times, perhaps in the short form.
    run: fn(usize, bool) -> Outcome,
}

const KILLED_AIM: &str = "median 20 ms, p99 50 ms";
const KEPT_AIM: &str = "no lease of a live client lost, none released early";

impl Scenario {
    const fn new(
        group: u8,
        name: &'static str,
        (runs, short): (usize, usize),
        run: fn(usize, bool) -> Outcome,
        aim: &'static str,
        description: &'static str,
    ) -> Self {
        Self {
            name,
            description,
            aim,
            limited: false,
            runs,
            short,
            group,
            run,
        }
    }

    /// The latencies have the limits of a death.
    const fn killed(self) -> Self {
        Self {
            limited: true,
            ..self
        }
    }

    fn run(&self, form: Form) -> Row {
        let runs = form.runs(self.runs, self.short);
        eprintln!("{}: {runs} runs", self.name);
        let outcome = caught(|| (self.run)(runs, matches!(form, Form::Short)));
        let outcome = outcome.unwrap_or_else(Outcome::failure);
        let row = outcome.row(self.name, self.description, self.aim, self.limited);
        eprintln!("{}: {} misses in {} runs", self.name, row.misses, row.runs);
        row
    }
}

/// Runs scenarios: those of one group side by side, in the short form all.
pub(crate) fn run(scenarios: &[&'static Scenario], form: Form) -> Vec<Row> {
    let short = matches!(form, Form::Short);
    let mut rows = Vec::new();
    for group in scenarios.chunk_by(|a, b| short || a.group == b.group) {
        thread::scope(|scope| {
            let running: Vec<_> = group
                .iter()
                .map(|scenario| scope.spawn(|| scenario.run(form)))
                .collect();
            rows.extend(running.into_iter().map(|row| row.join().unwrap()));
        });
    }
    rows
}

/// All scenarios, by groups.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario::new(1, "stopped", (200, 3), pauses::stopped,
        "kept, granted to nobody else, held after one check",
        "SIGSTOP for three ttls of 2 s with a waiter; 20 side by side. Measured: from SIGCONT until the holder knows \
         that it still holds"),
    Scenario::new(2, "unwatched", (20, 2), pauses::unwatched,
        "lost",
        "the same without a watchdog: the waiter is granted the lock, and the holder reads Lost"),
    Scenario::new(3, "killed", (2000, 5), deaths::killed,
        KILLED_AIM,
        "kill -9 of the holder, ttl 30 s, one after the other. Measured: from before the kill until the grant to the \
         waiter").killed(),
    Scenario::new(4, "killed-while-stopped", (100, 3), pauses::killed_while_stopped,
        KILLED_AIM,
        "stopped until the node renews for it, ttl 30 s, then killed").killed(),
    Scenario::new(5, "zombie", (100, 3), deaths::zombie,
        KILLED_AIM,
        "killed, and not reaped by its parent before the grant to the waiter").killed(),
    Scenario::new(6, "main-thread-gone", (100, 2), pauses::main_thread_gone,
        "alive; then median 20 ms, p99 50 ms",
        "the main thread ends and others go on; stopped for longer than the ttl of 6 s, it keeps its lock. Then \
         killed; that is measured").killed(),
    Scenario::new(7, "exec", (100, 3), deaths::exec,
        "the old lease released, the new one kept",
        "executes another program in its own place, which acquires another lock. Measured: from the order to exec \
         until the grant to the waiter, which includes the start of the new program"),
    Scenario::new(8, "forked-child", (100, 3), deaths::forked_child,
        KILLED_AIM,
        "killed, while a forked child holds its connection to the node open").killed(),
    Scenario::new(9, "pid-reuse", (100, 2), pid_reuse::pid_reuse,
        KILLED_AIM,
        "killed and reaped while the node is stopped; another process has its id when the node resumes. Measured: \
         from SIGCONT of the node").killed(),
    Scenario::new(10, "many-clients", (1, 1), many_clients::many_clients,
        "under 100 MiB, under 5 % of a core while all are healthy; all leases renewed in time",
        "1,000 connections with 100 leases each on one node, ttl 30 s, from 5 processes; then all stopped at once for \
         longer than the ttl"),
    Scenario::new(11, "node-killed", (100, 2), nodes::node_killed,
        KEPT_AIM,
        "kill -9 of one of two nodes"),
    Scenario::new(11, "node-restarted", (100, 2), nodes::node_restarted,
        KEPT_AIM,
        "one of two nodes ends in good order and is started again"),
    Scenario::new(11, "node-stopped", (100, 2), nodes::node_stopped,
        KEPT_AIM,
        "SIGSTOP of one of two nodes for up to 3 s"),
    Scenario::new(12, "nodes-killed", (100, 1), nodes::nodes_killed,
        "no lease lost but of paused clients; none released early",
        "kill -9 of both nodes at once. A client that is paused then may lose its lease"),
    Scenario::new(12, "client-node-partition", (100, 2), nodes::client_node_partition,
        KEPT_AIM,
        "two nodes over TLS; the network to one of them loses everything, or is cut"),
    Scenario::new(12, "node-store-partition", (100, 2), nodes::node_store_partition,
        KEPT_AIM,
        "the network from one of two nodes to the store loses everything, or is cut"),
];
