//! A real Redis cluster of a test's own: three masters, with or without a replica of each.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::redis::{RedisOptions, RedisServer};
use crate::wait::{addresses, eventually};

/// How many slots there are in every cluster.
const SLOTS: u32 = 16_384;

/// How many masters, and how many replicas if there are some.
const MASTERS: usize = 3;

/// How long any change of a cluster may take on a slow machine.
const SETTLED_WITHIN: Duration = Duration::from_secs(180);

/// How long a node is silent until the others consider it failed. One that is starved by a busy machine is not.
const NODE_TIMEOUT_MS: u32 = 4_000;

/// A running cluster. Its nodes end when it is dropped.
pub struct Cluster {
    nodes: Vec<RedisServer>,
}

/// A node in the reply to `CLUSTER NODES`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeEntry {
    id: String,
    /// The port for other nodes. With TLS the other port in the reply depends on the client.
    bus_port: u16,
    master: Option<String>,
    flags: String,
    epoch: String,
    /// The ranges of the slots of which it is the master.
    slots: Vec<String>,
}

impl NodeEntry {
    fn serves(&self) -> bool {
        !self.slots.is_empty()
    }
}

impl Cluster {
    /// A plain cluster.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&RedisOptions::default())
    }

    /// A cluster whose nodes have options.
    ///
    /// # Panics
    ///
    /// If it does not come up.
    #[must_use]
    pub fn start_with(options: &RedisOptions) -> Self {
        Self::of_nodes(2 * MASTERS, options)
    }

    /// A plain cluster without replicas.
    #[must_use]
    pub fn without_replicas() -> Self {
        Self::of_nodes(MASTERS, &RedisOptions::default())
    }

    fn of_nodes(count: usize, options: &RedisOptions) -> Self {
        let options = options.clone().together().cluster_node(NODE_TIMEOUT_MS);
        let cluster = Self {
            nodes: options.start_many(count),
        };
        cluster.join();
        cluster
    }

    /// Makes one cluster of the nodes: the first ones are the masters.
    fn join(&self) {
        let (masters, replicas) = self.nodes.split_at(MASTERS);
        for (nth, node) in self.nodes.iter().enumerate() {
            node.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &(nth + 1).to_string()]);
        }
        for (nth, node) in masters.iter().enumerate() {
            let share = |nth: usize| nth as u32 * SLOTS / MASTERS as u32;
            let (first, last) = (share(nth).to_string(), (share(nth + 1) - 1).to_string());
            node.cli(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
        }
        for node in &self.nodes[1..] {
            let (port, bus) = (
                self.nodes[0].port().to_string(),
                self.nodes[0].bus_port().to_string(),
            );
            node.cli(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        eventually(SETTLED_WITHIN, || {
            self.nodes
                .iter()
                .all(|node| cluster_nodes(node).len() == self.nodes.len())
        });
        for (replica, master) in replicas.iter().zip(masters) {
            let master = id(master);
            eventually(SETTLED_WITHIN, || {
                replica.try_cli(&["CLUSTER", "REPLICATE", &master]).is_ok()
            });
        }
        self.settled();
    }

    /// The URL of the cluster, with three of its nodes.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_with("")
    }

    /// The URL of the cluster for one of the users of its nodes.
    #[must_use]
    pub fn url_of(&self, user: &str, password: &str) -> String {
        self.url_with(&format!("{user}:{password}@"))
    }

    fn url_with(&self, credentials: &str) -> String {
        let query = self.nodes[0].query();
        let (scheme, host) = match query.is_empty() {
            false => ("rediss+cluster", "localhost"),
            true => ("redis+cluster", "127.0.0.1"),
        };
        let hosts = addresses(host, self.nodes[..MASTERS].iter().map(RedisServer::port));
        format!("{scheme}://{credentials}{hosts}{query}")
    }

    /// The nodes: at first three masters, then their replicas in the same order.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// A node, to kill it and start it again.
    pub fn node_mut(&mut self, nth: usize) -> &mut RedisServer {
        &mut self.nodes[nth]
    }

    /// The slot of a key, by the server's own count.
    #[must_use]
    pub fn slot_of(&self, key: &str) -> u16 {
        let slot = self.any_running_node().cli(&["CLUSTER", "KEYSLOT", key]);
        slot.parse().expect("a slot")
    }

    /// Runs one command on the node that has a key, as administrator.
    pub fn cli_at(&self, key: &str, args: &[&str]) -> String {
        self.nodes[self.master_of(self.slot_of(key))].cli(args)
    }

    /// Which node is the master of a slot, as a living node sees it.
    #[must_use]
    pub fn master_of(&self, slot: u16) -> usize {
        let includes = |range: &String| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let bounds = first.parse::<u16>().ok().zip(last.parse::<u16>().ok());
            bounds.is_some_and(|(first, last)| (first..=last).contains(&slot))
        };
        let nodes = cluster_nodes(self.any_running_node());
        let owner = nodes.iter().find(|entry| entry.slots.iter().any(includes));
        self.nth(&owner.expect("a slot that is served").id)
    }

    /// Waits until every living node reports that all is well: all slots are served, and each living node
    /// knows the role of each other.
    pub fn settled(&self) {
        eventually(SETTLED_WITHIN, || self.is_settled());
    }

    fn is_settled(&self) -> bool {
        let living: Vec<_> = self.nodes.iter().filter(|node| node.is_alive()).collect();
        let ok = |node: &RedisServer| {
            let info = node.try_cli(&["CLUSTER", "INFO"]).unwrap_or_default();
            let replication = node.try_cli(&["INFO", "replication"]).unwrap_or_default();
            let synced = replication.contains("role:master")
                || replication.contains("master_link_status:up");
            info.contains("cluster_state:ok")
                && info.contains(&format!("cluster_slots_ok:{SLOTS}"))
                && synced
        };
        let is_master = |node: &&&RedisServer| {
            let role = node.try_cli(&["ROLE"]).unwrap_or_default();
            role.starts_with("master")
        };
        let masters = living.iter().filter(is_master);
        let masters: BTreeSet<_> = masters.map(|node| id(node)).collect();
        // A node that was restarted is a master for itself and for others until they receive a newer
        // configuration.
        let agrees = |node: &RedisServer| {
            let mut entries = cluster_nodes(node);
            entries.retain(|entry| !entry.flags.contains("fail"));
            let clear = entries
                .iter()
                .all(|entry| entry.serves() || entry.master.is_some())
                && entries.len() == living.len();
            let serving = entries.into_iter().filter(NodeEntry::serves);
            clear && serving.map(|entry| entry.id).collect::<BTreeSet<_>>() == masters
        };
        living.iter().all(|node| ok(node) && agrees(node))
    }

    /// Makes a replica the master, with the old master's consent, and waits until it has.
    ///
    /// # Panics
    ///
    /// If it does not happen.
    pub fn fail_over(&self, replica: usize) {
        let replica = &self.nodes[replica];
        let is_master = || replica.cli(&["ROLE"]).starts_with("master");
        let mut requested: Option<Instant> = None;
        eventually(SETTLED_WITHIN, || {
            // The server refuses the failover while it suspects the master, and an accepted failover may time out.
            let due = requested.is_none_or(|at| at.elapsed() > Duration::from_secs(6));
            if due && !is_master() && replica.try_cli(&["CLUSTER", "FAILOVER"]).is_ok() {
                requested = Some(Instant::now());
            }
            is_master()
        });
    }

    /// The replica of a master, whichever that is now.
    #[must_use]
    pub fn replica_of(&self, master: usize) -> usize {
        let master = id(&self.nodes[master]);
        let nodes = cluster_nodes(self.any_running_node());
        let replica = nodes
            .iter()
            .find(|entry| entry.master.as_ref() == Some(&master));
        self.nth(&replica.expect("a replica").id)
    }

    /// Begins to move a slot: its owner redirects requests for a missing key to the other.
    pub fn begin_to_move(&self, slot: u16, to: usize) -> Move<'_> {
        let from = self.master_of(slot);
        let slot = slot.to_string();
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        target.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(source)]);
        source.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(target)]);
        Move {
            cluster: self,
            slot,
            from,
            to,
        }
    }

    /// Moves a slot with all its keys.
    pub fn move_slot(&self, slot: u16, to: usize) {
        if self.master_of(slot) == to {
            return;
        }
        let moving = self.begin_to_move(slot, to);
        while moving.move_keys(10) > 0 {}
        moving.end();
    }

    /// Waits until all living nodes have the same epoch and the same slots.
    fn agree(&self) {
        let view = |node: &RedisServer| {
            let info = node.try_cli(&["CLUSTER", "INFO"]).unwrap_or_default();
            let epoch = info
                .lines()
                .find(|line| line.starts_with("cluster_current_epoch"));
            let mut slots: Vec<_> = cluster_nodes(node)
                .into_iter()
                .filter(NodeEntry::serves)
                .map(|entry| (entry.id, entry.epoch, entry.slots))
                .collect();
            slots.sort();
            (epoch.map(str::to_owned), slots)
        };
        eventually(SETTLED_WITHIN, || {
            let mut living = self.running_nodes().map(view);
            let first = living.next();
            living.all(|other| Some(&other) == first.as_ref())
        });
    }

    fn running_nodes(&self) -> impl Iterator<Item = &RedisServer> {
        let runs = |node: &&RedisServer| node.is_alive() && !node.is_stopped();
        self.nodes.iter().filter(runs)
    }

    fn any_running_node(&self) -> &RedisServer {
        self.running_nodes().next().expect("a running node")
    }

    fn nth(&self, id: &str) -> usize {
        let nodes = cluster_nodes(self.any_running_node());
        let entry = nodes.iter().find(|entry| entry.id == id);
        let port = entry.map(|entry| entry.bus_port);
        let mut nodes = self.nodes.iter();
        nodes
            .position(|node| Some(node.bus_port()) == port)
            .expect("a node of ours")
    }
}

/// A slot under migration, until `end` is called.
pub struct Move<'a> {
    cluster: &'a Cluster,
    slot: String,
    from: usize,
    to: usize,
}

impl Move<'_> {
    /// The keys of the slot that have not moved yet, at most so many.
    #[must_use]
    pub fn keys(&self, count: usize) -> Vec<String> {
        let count = count.to_string();
        let source = &self.cluster.nodes[self.from];
        let keys = source.cli(&["CLUSTER", "GETKEYSINSLOT", &self.slot, &count]);
        keys.lines().map(str::to_owned).collect()
    }

    /// Moves some keys, and returns how many.
    pub fn move_keys(&self, count: usize) -> usize {
        let keys = self.keys(count);
        self.move_these(&keys.iter().map(String::as_str).collect::<Vec<_>>());
        keys.len()
    }

    /// Moves these keys.
    pub fn move_these(&self, keys: &[&str]) {
        if keys.is_empty() {
            return;
        }
        let port = self.cluster.nodes[self.to].port().to_string();
        let (user, password) = crate::redis::ADMIN;
        let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "30000"];
        migrate.extend(["AUTH2", user, password, "KEYS"]);
        migrate.extend(keys);
        self.cluster.nodes[self.from].cli(&migrate);
    }

    /// Makes the other node the owner, and waits until every living node knows.
    ///
    /// Otherwise a node that is given a slot before it knows the last change elsewhere claims it by an epoch
    /// that is too low, and loses it again, with all that is in it.
    pub fn end(self) {
        let nodes = &self.cluster.nodes;
        let owner = id(&nodes[self.to]);
        for node in [self.to, self.from] {
            nodes[node].cli(&["CLUSTER", "SETSLOT", &self.slot, "NODE", &owner]);
        }
        self.cluster.agree();
    }
}

fn id(node: &RedisServer) -> String {
    node.cli(&["CLUSTER", "MYID"])
}

/// All nodes that a node knows and has shaken hands with. Empty if the node does not reply.
fn cluster_nodes(node: &RedisServer) -> Vec<NodeEntry> {
    let nodes = node.try_cli(&["CLUSTER", "NODES"]).unwrap_or_default();
    let parse = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let (_, bus_port) = words.get(1)?.split_once('@')?;
        // A slot that moves is in brackets.
        let slots = words.get(8..)?.iter().filter(|word| !word.starts_with('['));
        Some(NodeEntry {
            id: words[0].to_owned(),
            bus_port: bus_port.split(',').next()?.parse().ok()?,
            master: (words[3] != "-").then(|| words[3].to_owned()),
            flags: words[2].to_owned(),
            epoch: words[6].to_owned(),
            slots: slots.map(|slots| (*slots).to_owned()).collect(),
        })
    };
    let nodes = nodes.lines().filter_map(parse);
    nodes
        .filter(|entry| !entry.flags.contains("handshake") && !entry.flags.contains("noaddr"))
        .collect()
}
