//! Scenarios of the watchdog: holders that are stopped and killed in many ways, nodes that are killed, stopped and cut
//! off.
//!
//! Servers, nodes and holders are processes of their own; the waiters for the locks are in this one.

mod contended_lock;
mod deaths;
mod many_clients;
mod nodes;
mod paused_holder;
mod pauses;
mod permits;
mod pid_reuse;
mod world;

use crate::scenario::{Scenario, WATCHDOG};

const KILLED_AIM: &str = "median 20 ms, p99 50 ms";
const KEPT_AIM: &str = "no lease of a live client lost, none released early";

/// All scenarios, by groups, which come after the changes of leader.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario::new(WATCHDOG, 2, "stopped", (200, 3), pauses::stopped,
        "kept, granted to nobody else, held after one check",
        "SIGSTOP for three ttls of 2 s with a waiter; 20 side by side. Measured: from SIGCONT until the holder knows \
         that it still holds"),
    Scenario::new(WATCHDOG, 3, "killed", (2000, 5), deaths::killed,
        KILLED_AIM,
        "kill -9 of the holder, ttl 30 s, one after the other. Measured: from before the kill until the grant to the \
         waiter").killed(),
    Scenario::new(WATCHDOG, 4, "killed-while-stopped", (100, 3), pauses::killed_while_stopped,
        KILLED_AIM,
        "stopped until the node renews for it, ttl 30 s, then killed").killed(),
    Scenario::new(WATCHDOG, 5, "zombie", (100, 3), deaths::zombie,
        KILLED_AIM,
        "killed, and not reaped by its parent before the grant to the waiter").killed(),
    Scenario::new(WATCHDOG, 6, "main-thread-gone", (100, 2), pauses::main_thread_gone,
        "alive; then median 20 ms, p99 50 ms",
        "the main thread ends and others go on; stopped for longer than the ttl of 6 s, it keeps its lock. Then \
         killed; that is measured").killed(),
    Scenario::new(WATCHDOG, 7, "exec", (100, 3), deaths::exec,
        "the old lease released, the new one kept",
        "executes another program in its own place, which acquires another lock. Measured: from the order to exec \
         until the grant to the waiter, which includes the start of the new program"),
    Scenario::new(WATCHDOG, 8, "forked-child", (100, 3), deaths::forked_child,
        KILLED_AIM,
        "killed, while a forked child holds its connection to the node open").killed(),
    Scenario::new(WATCHDOG, 9, "pid-reuse", (100, 2), pid_reuse::pid_reuse,
        KILLED_AIM,
        "killed and reaped while the node is stopped; another process has its id when the node resumes. Measured: \
         from SIGCONT of the node").killed(),
    Scenario::new(WATCHDOG, 10, "many-clients", (1, 1), many_clients::many_clients,
        "under 100 MiB, under 5 % of a core while all are healthy; all leases renewed in time",
        "1,000 connections with 100 leases each on one node, ttl 30 s, from 5 processes; then all stopped at once for \
         longer than the ttl"),
    Scenario::new(WATCHDOG, 11, "node-killed", (100, 2), nodes::node_killed,
        KEPT_AIM,
        "kill -9 of one of two nodes"),
    Scenario::new(WATCHDOG, 11, "node-restarted", (100, 2), nodes::node_restarted,
        KEPT_AIM,
        "one of two nodes ends in good order and is started again"),
    Scenario::new(WATCHDOG, 11, "node-stopped", (100, 2), nodes::node_stopped,
        KEPT_AIM,
        "SIGSTOP of one of two nodes for up to 3 s"),
    Scenario::new(WATCHDOG, 12, "nodes-killed", (100, 1), nodes::nodes_killed,
        "no lease lost but of paused clients; none released early",
        "kill -9 of both nodes at once. A client that is paused then may lose its lease"),
    Scenario::new(WATCHDOG, 12, "client-node-partition", (100, 2), nodes::client_node_partition,
        KEPT_AIM,
        "two nodes over TLS; the network to one of them loses everything, or is cut"),
    Scenario::new(WATCHDOG, 12, "node-store-partition", (100, 2), nodes::node_store_partition,
        KEPT_AIM,
        "the network from one of two nodes to the store loses everything, or is cut"),
    Scenario::new(WATCHDOG, 13, "permits-watched", (300, 3), permits::watched,
        KILLED_AIM,
        "8 processes share 5 permits, ttl 30 s; every second, one that has a permit is killed. Measured: from before \
         the kill until 5 others have permits").killed(),
    Scenario::new(WATCHDOG, 14, "permits-expired", (300, 3), permits::expired,
        "5 permits at most; back within the ttl, 1 % and 50 ms",
        "the same without a watchdog, ttl 900 ms").limited(permits::EXPIRED_LIMITS),
];
