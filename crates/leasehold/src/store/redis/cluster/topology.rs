//! The topology of a cluster: its nodes, the slot map, and the clients that receive events.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::future::select_ok;
use leasehold_core::{ClientId, Notice};
use redis::{Value, cmd};
use tokio::time::{Instant, timeout};

use super::super::address::{Address, Endpoint};
use super::super::codec::text;
use super::super::connection_manager::ConnectionManager;
use super::super::errors;
use super::super::observers::ServerObservers;
use super::super::slots;
use super::node::{ClusterNode, NodeAddr};
use super::slot_map::{SlotMap, SlotsReply};
use crate::Result;
use crate::store::api::{Event, EventScope, Key, Keyspace, Listener, Shard, WakeupMode};
use crate::store::lock::lock;
use crate::store::options::OpenOptions;

/// How long a node may take to return its slot map before another is asked.
const QUERY_LIMIT: Duration = Duration::from_millis(250);

/// How long a slot map counts as new, so that many callers cause one query.
const FRESH: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Topology {
    seeds: Vec<Address>,
    options: OpenOptions,
    map: Arc<SharedSlotMap>,
    known: Mutex<Known>,
    observers: Arc<ServerObservers>,
    /// Held during a query for the slot map, for which all callers wait together. Keeps the time of the last one.
    refreshing: tokio::sync::Mutex<Option<Instant>>,
    /// The number of queries.
    queries: AtomicU64,
}

/// The current slot map.
#[derive(Debug)]
struct SharedSlotMap(Mutex<Arc<SlotMap>>);

#[derive(Debug, Default)]
struct Known {
    nodes: HashMap<NodeAddr, Arc<ClusterNode>>,
    /// The shard of each address that was ever used: some bytes for each.
    shards: HashMap<NodeAddr, Shard>,
    clients: HashMap<ClientId, Client>,
}

#[derive(Debug)]
struct Client {
    space: Keyspace,
    listener: Weak<dyn Listener>,
    listeners: HashMap<Shard, Arc<NodeListener>>,
}

/// The changes of a new slot map, and who is notified of them.
///
/// Neither notified nor dropped under a lock, even without events: a listener may be the last reference to a client
/// that unsubscribes when it is dropped.
struct Changes {
    listeners: Vec<Arc<dyn Listener>>,
    events: Vec<Event>,
}

/// Receives the events of a node for a client, as long as the node owns their slots.
#[derive(Debug)]
struct NodeListener {
    shard: Shard,
    map: Arc<SharedSlotMap>,
    listener: Weak<dyn Listener>,
}

impl Topology {
    /// An empty topology, without connections.
    pub(super) fn new(seeds: Vec<Address>, options: OpenOptions) -> Self {
        Self {
            seeds,
            options,
            map: Arc::new(SharedSlotMap(Mutex::new(Arc::new(SlotMap::empty())))),
            known: Mutex::default(),
            observers: Arc::default(),
            refreshing: tokio::sync::Mutex::default(),
            queries: AtomicU64::new(0),
        }
    }

    pub(super) fn options(&self) -> &OpenOptions {
        &self.options
    }

    /// The observers of names at all nodes.
    pub(super) fn observers(&self) -> &ServerObservers {
        &self.observers
    }

    pub(super) fn map(&self) -> Arc<SlotMap> {
        self.map.now()
    }

    pub(super) fn shard(&self, key: &Key) -> Shard {
        self.map.shard(key).unwrap_or(Shard(0))
    }

    /// Queries all seeds, and uses the slot map of the first that replies.
    pub(super) async fn discover(&self) -> Result<()> {
        let query = |seed: &Address| {
            let (seed, options) = (seed.clone(), &self.options);
            let addr = addr_of(&seed).ok_or_else(errors::invalid_reply);
            let manager = ConnectionManager::new(seed, options);
            async move {
                let reply = query_slots(&manager, &addr?).await;
                reply.map_err(|error| error.at_store(manager.target()))
            }
        };
        // There is at least one: a URL without a host is invalid.
        let queries = self.seeds.iter().map(|seed| Box::pin(query(seed)));
        let (reply, _) = select_ok(queries).await?;
        self.learn(&reply);
        Ok(())
    }

    /// Queries a node for the slot map, `first` before all others, unless it is new.
    pub(super) async fn refresh(self: &Arc<Self>, first: Option<&NodeAddr>) {
        let seen = self.queries.load(Ordering::Acquire);
        let (topology, first) = (Arc::clone(self), first.cloned());
        // In a task: a caller that is not polled any more must not keep the others waiting.
        let refreshed =
            tokio::spawn(async move { topology.refresh_after(seen, first.as_ref()).await });
        // It fails only at the end of the runtime.
        let _ = refreshed.await;
    }

    /// The same, unless there was another query after the first `seen` ones.
    async fn refresh_after(&self, seen: u64, first: Option<&NodeAddr>) {
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
    async fn query_any(&self, first: Option<&NodeAddr>) -> Option<SlotsReply> {
        let map = self.map();
        let mut nodes = map.nodes().to_vec();
        // Start at another node each time, as one may be outdated.
        let turn = self.queries.load(Ordering::Relaxed) as usize;
        let count = nodes.len().max(1);
        nodes.rotate_left(turn % count);
        nodes.sort_by_key(|node| first != Some(&node.addr));
        let (ill, well): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|node| node.is_doubtful());
        for node in &well {
            if let Some(reply) = query_within_limit(&node.manager, &node.addr).await {
                return Some(reply);
            }
        }
        let replicas = map.replicas().iter();
        let replicas = replicas.map(|addr| self.seeds[0].at(&addr.host, addr.port));
        for address in replicas.chain(self.seeds.iter().cloned()) {
            let Some(addr) = addr_of(&address) else {
                continue;
            };
            if ill.iter().all(|node| node.addr != addr) {
                let options = OpenOptions::default()
                    .connect_timeout(QUERY_LIMIT)
                    .response_timeout(QUERY_LIMIT);
                let manager = ConnectionManager::new(address, &options);
                if let Some(reply) = query_within_limit(&manager, &addr).await {
                    return Some(reply);
                }
            }
        }
        for node in &ill {
            if let Some(reply) = query_within_limit(&node.manager, &node.addr).await {
                return Some(reply);
            }
        }
        None
    }

    /// The node at an address, which is queried for its id if it is unknown.
    pub(super) async fn find(&self, addr: &NodeAddr) -> Result<Arc<ClusterNode>> {
        if let Some(node) = lock(&self.known).nodes.get(addr) {
            return Ok(Arc::clone(node));
        }
        let address = self.seeds[0].at(&addr.host, addr.port);
        let options = &self.options;
        let manager = ConnectionManager::new(address, options);
        let id = query(&manager, &["CLUSTER", "MYID"]).await?;
        let id = text(&id).filter(|id| !id.is_empty());
        let id = id.ok_or_else(errors::invalid_reply)?;
        let mut known = lock(&self.known);
        let node = known.node(addr, &id, self);
        known.subscribe_all(&node, &self.map);
        Ok(node)
    }

    /// Makes the node at an address the owner of a slot, if it is known.
    pub(super) fn moved(&self, slot: u16, addr: &NodeAddr) {
        let changes = {
            let known = lock(&self.known);
            let Some(node) = known.nodes.get(addr) else {
                return;
            };
            let mut map = SlotMap::clone(&self.map());
            map.set(slot, node);
            known.replace_map(map, &self.map)
        };
        self.notify_changes(changes);
    }

    fn learn(&self, reply: &SlotsReply) {
        let changes = {
            let mut known = lock(&self.known);
            let masters = reply.masters.iter();
            let nodes: Vec<_> = masters
                .map(|master| known.node(&master.addr, &master.id, self))
                .collect();
            for node in &nodes {
                known.subscribe_all(node, &self.map);
            }
            let map = SlotMap::new(reply, &nodes);
            let is_there =
                |node: &Arc<ClusterNode>| map.nodes().iter().any(|there| Arc::ptr_eq(there, node));
            known.nodes.retain(|_, node| is_there(node));
            known.replace_map(map, &self.map)
        };
        self.notify_changes(changes);
    }

    fn notify_changes(&self, changes: Changes) {
        if !changes.events.is_empty() {
            // The former owner of a slot reports no changes there.
            self.observers.notify_all();
        }
        changes.notify();
    }

    pub(super) fn listen(&self, space: &Keyspace, client: ClientId, listener: Weak<dyn Listener>) {
        let mut known = lock(&self.known);
        let clients = &mut known.clients;
        clients.retain(|_, client| client.listener.strong_count() > 0);
        let listening = Client {
            space: space.clone(),
            listener,
            listeners: HashMap::new(),
        };
        clients.insert(client, listening);
        let nodes: Vec<_> = known.nodes.values().cloned().collect();
        for node in nodes {
            known.subscribe_all(&node, &self.map);
        }
    }

    pub(super) fn forget(&self, client: ClientId) {
        let nodes: Vec<_> = {
            let mut known = lock(&self.known);
            known.clients.remove(&client);
            known.nodes.values().cloned().collect()
        };
        for node in nodes {
            node.manager.forget(client);
        }
    }

    /// Notifies a client, if it has a listener.
    pub(super) fn notify(&self, client: ClientId, event: Event) {
        let listener = lock(&self.known)
            .clients
            .get(&client)
            .and_then(|client| client.listener.upgrade());
        if let Some(listener) = listener {
            listener.notify(event);
        }
    }

    /// How refused clients are woken: the weakest mode of all nodes.
    pub(super) fn wakeup_mode(&self) -> WakeupMode {
        let map = self.map();
        let wakes = map
            .nodes()
            .iter()
            .map(|node| node.manager.notifications().wakeup_mode());
        let rank = |wakes: &WakeupMode| match wakes {
            WakeupMode::Grants => 2,
            WakeupMode::Changes => 1,
            WakeupMode::Nothing => 0,
        };
        wakes.min_by_key(rank).unwrap_or(WakeupMode::Grants)
    }
}

impl Known {
    /// The node at an address. A node that replaces another there has the same shard.
    fn node(&mut self, addr: &NodeAddr, id: &str, topology: &Topology) -> Arc<ClusterNode> {
        if let Some(node) = self.nodes.get(addr)
            && node.id() == id
        {
            return Arc::clone(node);
        }
        let next = Shard(u32::try_from(self.shards.len()).unwrap_or(u32::MAX));
        let shard = *self.shards.entry(addr.clone()).or_insert(next);
        let (seed, options) = (&topology.seeds[0], &topology.options);
        let observers = &topology.observers;
        let node = ClusterNode::new(seed, addr.clone(), id, shard, options, observers);
        let node = Arc::new(node);
        self.nodes.insert(addr.clone(), Arc::clone(&node));
        node
    }

    /// Subscribes all clients at a node.
    fn subscribe_all(&mut self, node: &ClusterNode, map: &Arc<SharedSlotMap>) {
        let notifications = node.manager.notifications();
        for (id, client) in &mut self.clients {
            if notifications.has(*id) {
                continue;
            }
            let listener = &client.listener;
            let at_node = client.listeners.entry(node.shard).or_insert_with(|| {
                Arc::new(NodeListener {
                    shard: node.shard,
                    map: Arc::clone(map),
                    listener: Weak::clone(listener),
                })
            });
            let at_node: Arc<dyn Listener> = Arc::clone(at_node) as _;
            notifications.add(&client.space, *id, Arc::downgrade(&at_node));
        }
    }

    /// Replaces the slot map, and returns the events to send.
    ///
    /// A node that had no slots and now has those of one that has none any more has replaced it in a failover,
    /// and may have lost its last changes. Otherwise slots were migrated with their keys.
    fn replace_map(&self, map: SlotMap, shared_map: &SharedSlotMap) -> Changes {
        let old = shared_map.now();
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
        shared_map.take(map);
        let clients = self.clients.values();
        let listeners = clients.filter_map(|client| client.listener.upgrade());
        Changes {
            listeners: listeners.collect(),
            events,
        }
    }
}

impl Changes {
    /// Notifies every client of every event.
    fn notify(self) {
        for listener in self.listeners {
            for event in &self.events {
                listener.notify(event.clone());
            }
        }
    }
}

impl SharedSlotMap {
    fn now(&self) -> Arc<SlotMap> {
        Arc::clone(&lock(&self.0))
    }

    fn take(&self, map: SlotMap) {
        *lock(&self.0) = Arc::new(map);
    }

    fn shard(&self, key: &Key) -> Option<Shard> {
        let slot = slots::of(key);
        lock(&self.0).owner(slot).map(|node| node.shard)
    }
}

impl Listener for NodeListener {
    fn notify(&self, event: Event) {
        let Some(listener) = self.listener.upgrade() else {
            return;
        };
        listener.notify(match event {
            // The grant has the time of this node, but the request may have been applied by another one.
            Event::Notice(key, Notice::Granted(_)) if self.map.shard(&key) != Some(self.shard) => {
                Event::Moved(EventScope::Record(key))
            }
            Event::Interrupted(EventScope::Store) => {
                Event::Interrupted(EventScope::Shard(self.shard))
            }
            event => event,
        });
    }
}

/// Queries a node for the slot map.
async fn query_slots(manager: &ConnectionManager, addr: &NodeAddr) -> Result<SlotsReply> {
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
    match manager.query(command).await? {
        Value::ServerError(error) => Err(errors::of_cluster(&error)),
        value => Ok(value),
    }
}

/// The reply, if it arrives in time.
async fn query_within_limit(manager: &ConnectionManager, addr: &NodeAddr) -> Option<SlotsReply> {
    let reply = timeout(QUERY_LIMIT, query_slots(manager, addr)).await;
    reply.ok()?.ok()
}

fn addr_of(address: &Address) -> Option<NodeAddr> {
    match &address.endpoint {
        Endpoint::Tcp { host, port, .. } => Some(NodeAddr {
            host: host.as_str().to_owned(),
            port: *port,
        }),
        Endpoint::Unix { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::store::api::fixture;

    #[derive(Debug)]
    struct Ignored;

    impl Listener for Ignored {
        fn notify(&self, _: Event) {}
    }

    #[tokio::test]
    async fn a_caller_that_is_not_polled_any_more_keeps_no_other_waiting() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", silent.local_addr().unwrap());
        let seeds = vec![Address::parse(&url).unwrap()];
        let topology = Arc::new(Topology::new(seeds, OpenOptions::default()));
        let mut left = std::pin::pin!(topology.refresh(None));
        assert!(left.as_mut().now_or_never().is_none());
        // A task takes the lock before the second caller wants it.
        tokio::task::yield_now().await;
        let refreshed = timeout(Duration::from_secs(30), topology.refresh(None)).await;
        assert!(refreshed.is_ok());
    }

    /// Their drop unsubscribes a client, which takes the lock of the topology.
    #[test]
    fn no_listener_is_dropped_while_the_map_is_replaced() {
        let listener: Arc<dyn Listener> = Arc::new(Ignored);
        let client = Client {
            space: fixture::space("app", "t"),
            listener: Arc::downgrade(&listener),
            listeners: HashMap::new(),
        };
        let mut known = Known::default();
        known.clients.insert(ClientId::from_random([1; 16]), client);
        let map = SharedSlotMap(Mutex::new(Arc::new(SlotMap::empty())));
        let changes = known.replace_map(SlotMap::empty(), &map);
        assert!(changes.events.is_empty());
        assert_eq!(Arc::strong_count(&listener), 2);
    }
}
