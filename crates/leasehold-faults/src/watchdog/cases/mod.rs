//! The cases of the campaign.

mod cohort;
mod crowd;
mod deaths;
mod judge;
mod nodes;
mod paused;
mod reuse;
mod seat;

use super::outcome::{Limits, Outcome, Row};
use super::world::millis;

/// One case.
pub(super) struct Case {
    pub(super) name: &'static str,
    what: &'static str,
    aim: &'static str,
    limits: Option<Limits>,
    /// How often, and how often in the short form.
    pub(super) times: usize,
    pub(super) short: usize,
    /// Cases of one group are played side by side.
    pub(super) group: u8,
    /// Plays it so many times; the second says whether in the short form.
    pub(super) play: fn(usize, bool) -> Result<Outcome, String>,
}

impl Case {
    pub(super) fn row(&self, outcome: Outcome) -> Row {
        outcome.row(self.name, self.what, self.aim, self.limits)
    }
}

const KILLED: Option<Limits> = Some(Limits {
    median: millis(20),
    p99: millis(50),
});

const KILLED_AIM: &str = "median 20 ms, p99 50 ms";
const KEPT_AIM: &str = "no lease of a live client lost, none released early";

/// All of them, by groups.
pub(super) const CASES: &[Case] = &[
    Case {
        name: "stopped",
        what: "SIGSTOP for three ttls of 2 s while another waits; 20 side by side. Measured: from SIGCONT until \
               the holder knows that it still holds",
        aim: "kept, served to nobody, held after one check",
        limits: None,
        times: 200,
        short: 3,
        group: 1,
        play: paused::stopped,
    },
    Case {
        name: "unwatched",
        what: "the same without a watchdog: the other is served, and the holder is Lost when it looks",
        aim: "lost",
        limits: None,
        times: 20,
        short: 2,
        group: 2,
        play: paused::unwatched,
    },
    Case {
        name: "killed",
        what: "kill -9 of the holder, ttl 30 s, one after the other. Measured: from before the kill until the \
               one who waits has the lock",
        aim: KILLED_AIM,
        limits: KILLED,
        times: 2000,
        short: 5,
        group: 3,
        play: deaths::killed,
    },
    Case {
        name: "killed-while-stopped",
        what: "stopped until the node renews for it, ttl 30 s, then killed",
        aim: KILLED_AIM,
        limits: KILLED,
        times: 100,
        short: 3,
        group: 4,
        play: paused::killed_while_stopped,
    },
    Case {
        name: "zombie",
        what: "killed, and not reaped by its parent before the other was served",
        aim: KILLED_AIM,
        limits: KILLED,
        times: 100,
        short: 3,
        group: 5,
        play: deaths::zombie,
    },
    Case {
        name: "main-thread-gone",
        what: "the main thread ends and others go on; stopped for longer than the ttl of 6 s it is kept, and \
               holds afterwards. Then killed; that is measured",
        aim: "alive; then median 20 ms, p99 50 ms",
        limits: KILLED,
        times: 100,
        short: 2,
        group: 6,
        play: paused::main_thread_gone,
    },
    Case {
        name: "exec",
        what: "executes another program in its own place, which takes another lock. Measured: from the order to \
               exec until the old lock is served, which includes the start of the new program",
        aim: "the old lease released, the new one kept",
        limits: None,
        times: 100,
        short: 3,
        group: 7,
        play: deaths::exec,
    },
    Case {
        name: "forked-child",
        what: "killed, while a forked child holds its connection to the node open",
        aim: KILLED_AIM,
        limits: KILLED,
        times: 100,
        short: 3,
        group: 8,
        play: deaths::forked_child,
    },
    Case {
        name: "pid-reuse",
        what: "killed and reaped while the node is stopped; another process gets its id before the node looks. \
               Measured: from SIGCONT of the node",
        aim: KILLED_AIM,
        limits: KILLED,
        times: 100,
        short: 2,
        group: 9,
        play: reuse::pid_reuse,
    },
    Case {
        name: "crowd",
        what: "1,000 connections with 100 leases each on one node, ttl 30 s, from 5 processes; then all stopped \
               at once for longer than the ttl",
        aim: "under 100 MiB, under 5 % of a core while all are healthy; all leases renewed in time",
        limits: None,
        times: 1,
        short: 1,
        group: 10,
        play: crowd::crowd,
    },
    Case {
        name: "node-killed",
        what: "kill -9 of one of two nodes",
        aim: KEPT_AIM,
        limits: None,
        times: 100,
        short: 2,
        group: 11,
        play: nodes::node_killed,
    },
    Case {
        name: "node-restarted",
        what: "one of two nodes ends in good order and is started again",
        aim: KEPT_AIM,
        limits: None,
        times: 100,
        short: 2,
        group: 11,
        play: nodes::node_restarted,
    },
    Case {
        name: "node-stopped",
        what: "SIGSTOP of one of two nodes for up to 3 s",
        aim: KEPT_AIM,
        limits: None,
        times: 100,
        short: 2,
        group: 11,
        play: nodes::node_stopped,
    },
    Case {
        name: "nodes-killed",
        what: "kill -9 of both nodes at once. A client that is paused then may lose its lease",
        aim: "no lease lost but of who was paused; none released early",
        limits: None,
        times: 100,
        short: 1,
        group: 12,
        play: nodes::nodes_killed,
    },
    Case {
        name: "client-node-partition",
        what: "two nodes over TLS; the way to one of them loses everything, or is cut",
        aim: KEPT_AIM,
        limits: None,
        times: 100,
        short: 2,
        group: 12,
        play: nodes::client_node_partition,
    },
    Case {
        name: "node-store-partition",
        what: "the way from one of two nodes to the store loses everything, or is cut",
        aim: KEPT_AIM,
        limits: None,
        times: 100,
        short: 2,
        group: 12,
        play: nodes::node_store_partition,
    },
    Case {
        name: "nodes-partitioned",
        what: "nodes do not talk to each other, so there is nothing to cut",
        aim: KEPT_AIM,
        limits: None,
        times: 0,
        short: 0,
        group: 12,
        play: |_, _| Ok(Outcome::default()),
    },
];
