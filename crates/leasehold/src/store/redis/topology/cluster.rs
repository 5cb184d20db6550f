//! A cluster: its nodes, the slot map, and the clients that receive events.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{join_all, select_ok};
use redis::{Value, cmd};
use tokio::time::{Instant, sleep, timeout};

use super::node::{ClusterNode, Node};
use super::slot_map::{SlotMap, SlotsReply};
use crate::store::api::{Event, EventScope, Shard, WakeupMode};
use crate::store::lock::lock;
use crate::store::options::OpenOptions;
use crate::store::redis::address::{Address, Endpoint, HostPort};
use crate::store::redis::errors;
use crate::store::redis::link::clients::Clients;
use crate::store::redis::link::connection_manager::ConnectionManager;
use crate::store::redis::link::notifications::{NodeIdentity, Notifications};
use crate::store::redis::wire::reply::text;
use crate::store::redis::wire::slots;
use crate::store::tasks;
use crate::{ErrorKind, Result};

/// How long a node may take to return its slot map before another is asked.
const QUERY_LIMIT: Duration = Duration::from_millis(250);

/// How long a slot map counts as new, so that many callers cause one query.
const FRESH: Duration = Duration::from_millis(50);

/// The interval of checks of a cluster that is not ready.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The nodes of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    seeds: Vec<Address>,
    pub(super) options: OpenOptions,
    /// The current slot map.
    map: Arc<Mutex<Arc<SlotMap>>>,
    known: Mutex<Known>,
    /// The clients, and the observers of names at all nodes.
    pub(super) clients: Arc<Clients>,
    /// Held during a query for the slot map, for which all callers wait together. Keeps the time of the last one.
    refreshing: tokio::sync::Mutex<Option<Instant>>,
    /// The number of queries.
    queries: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    nodes: HashMap<HostPort, Arc<ClusterNode>>,
    /// The shard of each address that was ever used: some bytes for each.
    shards: HashMap<HostPort, Shard>,
}

impl Cluster {
    /// Without connections.
    pub(crate) fn new(seeds: Vec<Address>, options: OpenOptions) -> Self {
        Self {
            seeds,
            options,
            ..Self::default()
        }
    }

    pub(crate) fn map(&self) -> Arc<SlotMap> {
        Arc::clone(&lock(&self.map))
    }

    /// Queries all seeds, and uses the slot map of the first that replies.
    async fn discover(&self) -> Result<()> {
        let queries = self.seeds.iter().map(|seed| {
            let addr = addr_of(seed).ok_or_else(errors::invalid_reply);
            let manager = ConnectionManager::new(seed.clone(), &self.options);
            Box::pin(async move {
                let reply = query_slots(&manager, &addr?).await;
                reply.map_err(|error| error.at_store(manager.target()))
            })
        });
        // There is at least one: a URL without a host is invalid.
        let (reply, _) = select_ok(queries).await?;
        self.learn(&reply);
        Ok(())
    }

    /// Proves that all slots are served and that all masters accept us. A master that fails may be replaced
    /// within the connect timeout.
    pub(crate) async fn greet(self: &Arc<Self>) -> Result<()> {
        self.discover().await?;
        let start = Instant::now();
        loop {
            let map = self.map();
            let greetings = map.nodes.iter().map(|node| node.greet());
            let failed = join_all(greetings).await.into_iter().find_map(Result::err);
            let error = match (map.uncovered(), failed) {
                (0, None) => return Ok(()),
                (0, Some(error)) => error,
                (uncovered, _) => return Err(errors::slots_without_node(uncovered)),
            };
            let in_time = start.elapsed() < self.options.connect_timeout;
            if error.kind() != ErrorKind::Unreachable || !in_time {
                return Err(error);
            }
            sleep(CHECK_INTERVAL).await;
            self.refresh(None).await;
        }
    }

    /// Subscribes at all nodes, those that were added included: a client describes itself from time to time.
    pub(crate) async fn settle(self: &Arc<Self>) {
        self.refresh(None).await;
        let map = self.map();
        let nodes = map.nodes.iter();
        let settled = nodes.map(|node| node.server.manager.session(Duration::ZERO, true));
        drop(join_all(settled).await);
    }

    /// Queries a node for the slot map, `first` before all others, unless it is new.
    pub(crate) async fn refresh(self: &Arc<Self>, first: Option<&HostPort>) {
        let seen = self.queries.load(Ordering::Acquire);
        let (cluster, first) = (Arc::clone(self), first.cloned());
        // In a task: a caller that is no longer polled must not keep the others waiting.
        let refreshed =
            tasks::spawn(async move { cluster.refresh_after(seen, first.as_ref()).await });
        // It fails only at the end of the runtime.
        let _ = refreshed.await;
    }

    /// The same, unless there was another query after the first `seen` ones.
    async fn refresh_after(&self, seen: u64, first: Option<&HostPort>) {
        let mut last = self.refreshing.lock().await;
        let fresh = last.is_some_and(|last| last.elapsed() < FRESH);
        if fresh || seen != self.queries.load(Ordering::Acquire) {
            return;
        }
        let reply = self.query_any(first).await;
        *last = Some(Instant::now());
        self.queries.fetch_add(1, Ordering::Release);
        if let Some(reply) = reply {
            self.learn(&reply);
        }
    }

    /// Queries one node after the other: healthy nodes, replicas and seeds, and then doubtful nodes.
    async fn query_any(&self, first: Option<&HostPort>) -> Option<SlotsReply> {
        let map = self.map();
        let mut nodes = map.nodes.to_vec();
        // Start at another node each time, as one may be outdated.
        let turn = self.queries.load(Ordering::Relaxed) as usize;
        let count = nodes.len().max(1);
        nodes.rotate_left(turn % count);
        nodes.sort_by_key(|node| first != Some(&node.addr));
        let (ill, well): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|node| node.is_doubtful());
        let options = OpenOptions::default()
            .connect_timeout(QUERY_LIMIT)
            .response_timeout(QUERY_LIMIT);
        let replicas = map.replicas.iter();
        let replicas = replicas.map(|addr| self.seeds[0].at(&addr.host, addr.port));
        let others = replicas.chain(self.seeds.iter().cloned());
        let others = others.filter_map(|address| {
            let addr = addr_of(&address)?;
            let is_ill = ill.iter().any(|node| node.addr == addr);
            (!is_ill).then(|| (ConnectionManager::new(address, &options), addr))
        });
        let known = |node: &Arc<ClusterNode>| (node.server.manager.clone(), node.addr.clone());
        let (well, ill) = (well.iter().map(known), ill.iter().map(known));
        let managers: Vec<_> = well.chain(others).chain(ill).collect();
        for (manager, addr) in managers {
            let reply = timeout(QUERY_LIMIT, query_slots(&manager, &addr)).await;
            if let Ok(Ok(reply)) = reply {
                return Some(reply);
            }
        }
        None
    }

    /// The node at an address, which is queried for its id if it is unknown.
    pub(crate) async fn find(&self, addr: &HostPort) -> Result<Arc<ClusterNode>> {
        if let Some(node) = lock(&self.known).nodes.get(addr) {
            return Ok(Arc::clone(node));
        }
        let address = self.seeds[0].at(&addr.host, addr.port);
        let options = &self.options;
        let manager = ConnectionManager::new(address, options);
        let id = query(&manager, &["CLUSTER", "MYID"]).await?;
        let id = text(&id).filter(|id| !id.is_empty());
        let id = id.ok_or_else(errors::invalid_reply)?;
        Ok(lock(&self.known).node(addr, &id, self))
    }

    /// Makes the node at an address the owner of a slot, if it is known.
    pub(crate) fn moved(&self, slot: u16, addr: &HostPort) {
        let events = {
            let known = lock(&self.known);
            let Some(node) = known.nodes.get(addr) else {
                return;
            };
            let mut map = SlotMap::clone(&self.map());
            map.set(slot, node);
            replace_map(map, &self.map)
        };
        self.notify(&events);
    }

    fn learn(&self, reply: &SlotsReply) {
        let events = {
            let mut known = lock(&self.known);
            let masters = reply.masters.iter();
            let nodes: Vec<_> = masters
                .map(|master| known.node(&master.addr, &master.id, self))
                .collect();
            let map = SlotMap::new(reply, &nodes);
            let is_there =
                |node: &Arc<ClusterNode>| map.nodes.iter().any(|there| Arc::ptr_eq(there, node));
            known.nodes.retain(|_, node| is_there(node));
            replace_map(map, &self.map)
        };
        self.notify(&events);
    }

    /// Notifies every client of the changes of the slot map.
    fn notify(&self, events: &[Event]) {
        for event in events {
            self.clients.notify_all(event);
            // The former owner of a slot reports no changes there.
            self.clients.observers.notify_all();
        }
    }

    /// How refused clients are woken: the weakest mode of all nodes.
    pub(crate) fn wakeup_mode(&self) -> WakeupMode {
        let map = self.map();
        let nodes = map.nodes.iter();
        let modes = nodes.map(|node| node.server.manager.notifications().wakeup_mode());
        let modes: Vec<_> = modes.collect();
        let mut weak = [WakeupMode::Nothing, WakeupMode::Changes].into_iter();
        let weakest = weak.find(|mode| modes.contains(mode));
        weakest.unwrap_or(WakeupMode::Grants)
    }
}

impl Known {
    /// The node at an address. A node that replaces another there has the same shard.
    fn node(&mut self, addr: &HostPort, id: &str, cluster: &Cluster) -> Arc<ClusterNode> {
        if let Some(node) = self.nodes.get(addr)
            && node.id() == id
        {
            return Arc::clone(node);
        }
        let next = Shard(u32::try_from(self.shards.len()).unwrap_or(u32::MAX));
        let shard = *self.shards.entry(addr.clone()).or_insert(next);
        let address = cluster.seeds[0].at(&addr.host, addr.port);
        let identity = NodeIdentity {
            id: id.to_owned(),
            shard,
            owners: Arc::clone(&cluster.map) as _,
        };
        let notifications = Notifications::of_node(identity, &cluster.clients);
        let manager = ConnectionManager::notifying(notifications, address, &cluster.options);
        let node = Arc::new(ClusterNode {
            addr: addr.clone(),
            shard,
            server: Arc::new(Node::new(manager)),
            doubtful: AtomicBool::new(false),
        });
        self.nodes.insert(addr.clone(), Arc::clone(&node));
        node
    }
}

/// Replaces the slot map, and returns the events to send.
///
/// A node that had no slots and now has those of one that has lost all has replaced it in a failover,
/// and may have lost its last changes. Otherwise slots were migrated with their keys.
fn replace_map(map: SlotMap, current: &Mutex<Arc<SlotMap>>) -> Vec<Event> {
    let old = Arc::clone(&lock(current));
    let mut events = Vec::<Event>::new();
    for slot in 0..slots::SLOTS {
        let (Some(before), Some(now)) = (old.owner(slot), map.owner(slot)) else {
            continue;
        };
        if Arc::ptr_eq(before, now) {
            continue;
        }
        let has_slots = |map: &SlotMap, node: &Arc<ClusterNode>| {
            (0..slots::SLOTS).any(|slot| {
                map.owner(slot)
                    .is_some_and(|owner| Arc::ptr_eq(owner, node))
            })
        };
        let moved = Event::Moved(EventScope::Shard(now.shard));
        let interrupted = Event::Interrupted(EventScope::Shard(now.shard));
        if events.contains(&moved) || events.contains(&interrupted) {
            continue;
        }
        let failed_over = !has_slots(&old, now) && !has_slots(&map, before);
        events.push(if failed_over { interrupted } else { moved });
    }
    *lock(current) = Arc::new(map);
    events
}

/// Queries a node for the slot map.
async fn query_slots(manager: &ConnectionManager, addr: &HostPort) -> Result<SlotsReply> {
    let value = query(manager, &["CLUSTER", "SLOTS"]).await?;
    let reply = SlotsReply::parse(&value, addr).ok_or_else(errors::invalid_reply)?;
    match reply.masters.is_empty() {
        // The node does not know the others yet, or was removed.
        true => Err(errors::slots_without_node(slots::SLOTS.into())),
        false => Ok(reply),
    }
}

/// Sends one command.
async fn query(manager: &ConnectionManager, words: &[&str]) -> Result<Value> {
    let mut command = cmd(words[0]);
    command.arg(&words[1..]);
    match manager.query(Duration::ZERO, command).await? {
        Value::ServerError(error) => Err(errors::of_cluster(&error)),
        value => Ok(value),
    }
}

fn addr_of(address: &Address) -> Option<HostPort> {
    match &address.endpoint {
        Endpoint::Tcp(addr) => Some(addr.clone()),
        Endpoint::Unix(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::store::redis::address::deployment::Deployment;

    #[tokio::test]
    async fn a_caller_that_is_not_polled_any_more_keeps_no_other_waiting() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis+cluster://{}", silent.local_addr().unwrap());
        let Ok(Deployment::Cluster(seeds)) = Deployment::parse(&url) else {
            unreachable!("{url}")
        };
        let cluster = Arc::new(Cluster::new(seeds, OpenOptions::default()));
        let mut left = std::pin::pin!(cluster.refresh(None));
        assert!(left.as_mut().now_or_never().is_none());
        // A task takes the lock before the second caller wants it.
        tokio::task::yield_now().await;
        let refreshed = timeout(Duration::from_secs(30), cluster.refresh(None)).await;
        assert!(refreshed.is_ok());
    }
}
