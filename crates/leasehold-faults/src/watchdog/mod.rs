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

/// All scenarios, by groups, which come after the changes of leader.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario::new(WATCHDOG, 2, "stopped", (200, 3), pauses::stopped,
        "SIGSTOP for three ttls of 2 s with a waiter; 20 side by side. It keeps its lock. Measured: from SIGCONT until \
         the holder knows, after one check, that it still holds"),
    Scenario::new(WATCHDOG, 3, "killed", (2000, 5), deaths::killed,
        "kill -9 of the holder, ttl 30 s, one after the other. Measured: from before the kill until the grant to the \
         waiter").killed(),
    Scenario::new(WATCHDOG, 4, "killed-while-stopped", (100, 3), pauses::killed_while_stopped,
        "stopped until the node renews for it, ttl 30 s, then killed").killed(),
    Scenario::new(WATCHDOG, 5, "zombie", (100, 3), deaths::zombie,
        "killed, and not reaped by its parent before the grant to the waiter").killed(),
    Scenario::new(WATCHDOG, 6, "main-thread-gone", (100, 2), pauses::main_thread_gone,
        "the main thread ends and others go on; stopped for longer than the ttl of 6 s, it keeps its lock. Then \
         killed; that is measured").killed(),
    Scenario::new(WATCHDOG, 7, "exec", (100, 3), deaths::exec,
        "executes another program in its own place, which acquires another lock and keeps it; the old lease is \
         released. Measured: from the order to exec until the grant to the waiter, which includes the start of the new \
         program"),
    Scenario::new(WATCHDOG, 8, "forked-child", (100, 3), deaths::forked_child,
        "killed, while a forked child holds its connection to the node open").killed(),
    Scenario::new(WATCHDOG, 9, "pid-reuse", (100, 2), pid_reuse::pid_reuse,
        "killed and reaped while the node is stopped; another process has its id when the node resumes. Measured: \
         from SIGCONT of the node").killed(),
    Scenario::new(WATCHDOG, 10, "many-clients", (1, 1), many_clients::many_clients,
        "1,000 connections with 100 leases each on one node, ttl 30 s, from 5 processes; then all stopped at once for \
         longer than the ttl. The node has under 100 MiB, uses under 5 % of a core while all are healthy, and renews all \
         leases in time"),
    Scenario::new(WATCHDOG, 11, "node-killed", (100, 2), nodes::node_killed,
        "kill -9 of one of two nodes"),
    Scenario::new(WATCHDOG, 11, "node-restarted", (100, 2), nodes::node_restarted,
        "one of two nodes ends in good order and is started again"),
    Scenario::new(WATCHDOG, 11, "node-stopped", (100, 2), nodes::node_stopped,
        "SIGSTOP of one of two nodes for up to 3 s"),
    Scenario::new(WATCHDOG, 12, "nodes-killed", (100, 1), nodes::nodes_killed,
        "kill -9 of both nodes at once. A client that is paused then may lose its lease"),
    Scenario::new(WATCHDOG, 12, "client-node-partition", (100, 2), nodes::client_node_partition,
        "two nodes over TLS; the network to one of them loses everything, or is cut"),
    Scenario::new(WATCHDOG, 12, "node-store-partition", (100, 2), nodes::node_store_partition,
        "the network from one of two nodes to the store loses everything, or is cut"),
    Scenario::new(WATCHDOG, 13, "permits-watched", (300, 3), permits::watched,
        "8 processes share 5 permits, ttl 30 s; every second, one that has a permit is killed. Measured: from before \
         the kill until 5 others have permits").killed(),
    Scenario::new(WATCHDOG, 14, "permits-expired", (300, 3), permits::expired,
        "the same without a watchdog, ttl 900 ms; a permit is back within the ttl, 1 % and 50 ms")
        .limited(permits::EXPIRED_LIMITS),
];
