//! What is known of a cluster: its nodes, who has which slot, and who listens.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use futures_util::future::select_ok;
use leasehold_core::{ClientId, Notice};
use redis::aio::MultiplexedConnection;
use redis::{Value, cmd};
use tokio::time::{Instant, timeout};

use super::super::address::{Address, Endpoint};
use super::super::codec::text;
use super::super::connection_manager::{ConnectionManager, ExchangeError};
use super::super::errors;
use super::node::ClusterNode;
use super::node_addr::NodeAddr;
use super::slot_map::{SlotMap, SlotsReply};
use super::slots;
use crate::store::api::{Event, EventScope, Key, Keyspace, Listener, Shard, WakeupMode};
use crate::store::options::OpenOptions;
use crate::{Error, Result};

/// How long a node may take to say who has which slot before another is asked.
const PATIENCE: Duration = Duration::from_millis(250);

/// How long what a node said is taken for new. Many who find out the same ask once.
const FRESH: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Topology {
    seeds: Vec<Address>,
    options: OpenOptions,
    map: Arc<SharedSlotMap>,
    known: Mutex<Known>,
    /// Held while a node is asked who has which slot: whoever wants to know waits for the one answer.
    /// Keeps when that was last.
    asking: tokio::sync::Mutex<Option<Instant>>,
    /// How often a node was asked.
    asked: AtomicU64,
}

/// The map of this moment.
#[derive(Debug)]
struct SharedSlotMap(RwLock<Arc<SlotMap>>);

#[derive(Debug, Default)]
struct Known {
    nodes: HashMap<NodeAddr, Arc<ClusterNode>>,
    /// The number of each addr there ever was: some bytes for each.
    numbers: HashMap<NodeAddr, Shard>,
    clients: HashMap<ClientId, Client>,
}

#[derive(Debug)]
struct Client {
    space: Keyspace,
    listener: Weak<dyn Listener>,
    ears: HashMap<Shard, Arc<Ear>>,
}

/// Takes the subscriptions of a node for a client, as long as it is the node's to tell them.
#[derive(Debug)]
struct Ear {
    shard: Shard,
    map: Arc<SharedSlotMap>,
    listener: Weak<dyn Listener>,
}

impl Topology {
    /// Nothing is known, and nothing connected.
    pub(super) fn new(seeds: Vec<Address>, options: OpenOptions) -> Self {
        Self {
            seeds,
            options,
            map: Arc::new(SharedSlotMap(RwLock::new(Arc::new(SlotMap::empty())))),
            known: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            asked: AtomicU64::new(0),
        }
    }

    pub(super) fn options(&self) -> &OpenOptions {
        &self.options
    }

    pub(super) fn map(&self) -> Arc<SlotMap> {
        self.map.now()
    }

    pub(super) fn shard(&self, key: &Key) -> Shard {
        self.map.shard(key).unwrap_or(Shard(0))
    }

    /// Asks all seeds for the map, and takes that of the first that answers.
    pub(super) async fn discover(&self) -> Result<()> {
        let ask = |seed: &Address| {
            let (seed, options) = (seed.clone(), &self.options);
            let addr = place_of(&seed).ok_or_else(errors::strange_answer);
            let manager =
                ConnectionManager::new(seed, options.connect_timeout, options.response_timeout);
            async move {
                let told = ask(&manager, &addr?).await;
                told.map_err(|error| error.at_store(manager.target()))
            }
        };
        // There is one at least: a URL without a host is none.
        let asked = self.seeds.iter().map(|seed| Box::pin(ask(seed)));
        let (told, _) = select_ok(asked).await?;
        self.learn(&told);
        Ok(())
    }

    /// Asks a node for the map, `first` before all others, unless that was done just now. Answers whether
    /// one was learned.
    pub(super) async fn refresh(&self, first: Option<&NodeAddr>) -> bool {
        let seen = self.asked.load(Ordering::Acquire);
        let mut last = self.asking.lock().await;
        let fresh = last.is_some_and(|last| last.elapsed() < FRESH);
        if fresh || seen != self.asked.load(Ordering::Acquire) {
            return true;
        }
        let told = self.ask_any(first).await;
        *last = Some(Instant::now());
        self.asked.fetch_add(1, Ordering::Release);
        match told {
            Some(told) => {
                self.learn(&told);
                true
            }
            None => false,
        }
    }

    /// Asks one node after the other: those that are well, those that are not, and those that the URL
    /// names.
    async fn ask_any(&self, first: Option<&NodeAddr>) -> Option<SlotsReply> {
        let map = self.map();
        let (mut well, mut ill): (Vec<_>, Vec<_>) = map
            .nodes()
            .iter()
            .cloned()
            .partition(|node| !node.is_doubtful());
        // Not always the same one: it may be the one that is behind.
        let turn = self.asked.load(Ordering::Relaxed) as usize;
        let count = well.len().max(1);
        well.rotate_left(turn % count);
        well.append(&mut ill);
        if let Some(first) = first {
            well.sort_by_key(|node| node.addr != *first);
        }
        let (ill, well): (Vec<_>, Vec<_>) = well.into_iter().partition(|node| node.is_doubtful());
        for node in &well {
            if let Some(told) = within(ask(&node.manager, &node.addr)).await {
                return Some(told);
            }
        }
        let replicas = map.replicas().iter();
        let replicas = replicas.map(|addr| self.seeds[0].at(&addr.host, addr.port));
        let others = replicas.chain(self.seeds.iter().cloned());
        for address in others {
            let Some(addr) = place_of(&address) else {
                continue;
            };
            if ill.iter().any(|node| node.addr == addr) {
                continue;
            }
            let manager = ConnectionManager::new(address, PATIENCE, PATIENCE);
            if let Some(told) = within(ask(&manager, &addr)).await {
                return Some(told);
            }
        }
        for node in &ill {
            if let Some(told) = within(ask(&node.manager, &node.addr)).await {
                return Some(told);
            }
        }
        None
    }

    /// The node at a addr, which is asked who it is if nobody knows.
    pub(super) async fn find(&self, addr: &NodeAddr) -> Result<Arc<ClusterNode>> {
        if let Some(node) = self.known().nodes.get(addr) {
            return Ok(Arc::clone(node));
        }
        let address = self.seeds[0].at(&addr.host, addr.port);
        let options = &self.options;
        let manager =
            ConnectionManager::new(address, options.connect_timeout, options.response_timeout);
        let id = tell(&manager, &["CLUSTER", "MYID"]).await?;
        let id = text(&id).filter(|id| !id.is_empty());
        let id = id.ok_or_else(errors::strange_answer)?;
        let mut known = self.known();
        let node = known.node(addr, &id, self);
        known.introduce(&node, &self.map);
        Ok(node)
    }

    /// Notes that a slot belongs to the node at a addr, if that is known.
    pub(super) fn moved(&self, slot: u16, addr: &NodeAddr) {
        let told = {
            let known = self.known();
            let Some(node) = known.nodes.get(addr) else {
                return;
            };
            let mut map = SlotMap::clone(&self.map());
            map.set(slot, node);
            known.take_up(map, &self.map)
        };
        tell_all(told);
    }

    fn learn(&self, told: &SlotsReply) {
        let told = {
            let mut known = self.known();
            let masters = told.masters.iter();
            let nodes: Vec<_> = masters
                .map(|master| known.node(&master.addr, &master.id, self))
                .collect();
            for node in &nodes {
                known.introduce(node, &self.map);
            }
            let map = SlotMap::new(told, &nodes);
            let is_there =
                |node: &Arc<ClusterNode>| map.nodes().iter().any(|there| Arc::ptr_eq(there, node));
            known.nodes.retain(|_, node| is_there(node));
            known.take_up(map, &self.map)
        };
        tell_all(told);
    }

    pub(super) fn listen(&self, space: &Keyspace, client: ClientId, listener: Weak<dyn Listener>) {
        let mut known = self.known();
        let clients = &mut known.clients;
        clients.retain(|_, client| client.listener.strong_count() > 0);
        let listening = Client {
            space: space.clone(),
            listener,
            ears: HashMap::new(),
        };
        clients.insert(client, listening);
        let nodes: Vec<_> = known.nodes.values().cloned().collect();
        for node in nodes {
            known.introduce(&node, &self.map);
        }
    }

    pub(super) fn forget(&self, client: ClientId) {
        let nodes: Vec<_> = {
            let mut known = self.known();
            known.clients.remove(&client);
            known.nodes.values().cloned().collect()
        };
        for node in nodes {
            node.manager.forget(client);
        }
    }

    /// Tells a client, if it listens.
    pub(super) fn tell(&self, client: ClientId, event: Event) {
        let listener = self
            .known()
            .clients
            .get(&client)
            .and_then(|client| client.listener.upgrade());
        if let Some(listener) = listener {
            listener.notify(event);
        }
    }

    /// How they are woken who were refused: as the least of the nodes can do it.
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

    fn known(&self) -> MutexGuard<'_, Known> {
        // No panic can leave it half changed: each change is one call.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// The node at a addr. Another that came there has the number of the first.
    fn node(&mut self, addr: &NodeAddr, id: &str, topology: &Topology) -> Arc<ClusterNode> {
        if let Some(node) = self.nodes.get(addr)
            && node.id() == id
        {
            return Arc::clone(node);
        }
        let next = Shard(u32::try_from(self.numbers.len()).unwrap_or(u32::MAX));
        let shard = *self.numbers.entry(addr.clone()).or_insert(next);
        let (seed, options) = (&topology.seeds[0], &topology.options);
        let node = Arc::new(ClusterNode::new(seed, addr.clone(), id, shard, options));
        self.nodes.insert(addr.clone(), Arc::clone(&node));
        node
    }

    /// Has a node tell all who listen.
    fn introduce(&mut self, node: &ClusterNode, map: &Arc<SharedSlotMap>) {
        let notifications = node.manager.notifications();
        for (id, client) in &mut self.clients {
            if notifications.has(*id) {
                continue;
            }
            let listener = &client.listener;
            let ear = client.ears.entry(node.shard).or_insert_with(|| {
                Arc::new(Ear {
                    shard: node.shard,
                    map: Arc::clone(map),
                    listener: Weak::clone(listener),
                })
            });
            let ear: Arc<dyn Listener> = Arc::clone(ear) as _;
            notifications.add(&client.space, *id, Arc::downgrade(&ear));
        }
    }

    /// Takes up a map, and answers what is to be told of it to whom.
    ///
    /// A node that had no slots and has those of one that has none any more took its addr: it may not
    /// know what that one did last. Else slots have moved with all that is in them.
    fn take_up(&self, map: SlotMap, shared_map: &SharedSlotMap) -> Vec<(Arc<dyn Listener>, Event)> {
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
        let notifications = clients.filter_map(|client| client.listener.upgrade());
        let notifications: Vec<_> = notifications.collect();
        let each = |event: Event| {
            let told = notifications.iter().cloned();
            told.map(move |listener| (listener, event.clone()))
                .collect::<Vec<_>>()
        };
        events.into_iter().flat_map(each).collect()
    }
}

impl SharedSlotMap {
    fn now(&self) -> Arc<SlotMap> {
        let map = self.0.read();
        Arc::clone(&map.unwrap_or_else(PoisonError::into_inner))
    }

    fn take(&self, map: SlotMap) {
        let mut now = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *now = Arc::new(map);
    }

    fn shard(&self, key: &Key) -> Option<Shard> {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        map.owner(slots::of(key)).map(|node| node.shard)
    }
}

impl Listener for Ear {
    fn notify(&self, event: Event) {
        let Some(listener) = self.listener.upgrade() else {
            return;
        };
        listener.notify(match event {
            // It says when by its own clock, and nobody knows by whose the question was answered.
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

/// Not under a lock: a listener may be the last to hold something that forgets a client.
fn tell_all(told: Vec<(Arc<dyn Listener>, Event)>) {
    for (listener, event) in told {
        listener.notify(event);
    }
}

/// Asks a node who has which slot.
async fn ask(manager: &ConnectionManager, addr: &NodeAddr) -> Result<SlotsReply> {
    let answer = tell(manager, &["CLUSTER", "SLOTS"]).await?;
    let told = SlotsReply::parse(&answer, addr).ok_or_else(errors::strange_answer)?;
    match told.masters.is_empty() {
        // It was not told of the others yet, or was thrown out.
        true => Err(errors::slots_without_node(slots::SLOTS.into())),
        false => Ok(told),
    }
}

async fn tell(manager: &ConnectionManager, words: &[&str]) -> Result<Value> {
    let mut command = cmd(words[0]);
    command.arg(&words[1..]);
    let asked = |mut connection: MultiplexedConnection| async move {
        connection.send_packed_command(&command).await
    };
    match manager.exchange(asked).await {
        Ok(Value::ServerError(error)) => Err(errors::of_cluster(&error)),
        Ok(answer) => Ok(answer),
        Err(ExchangeError::NotSent(error) | ExchangeError::Unanswered(error)) => Err(error),
    }
}

async fn within(told: impl Future<Output = Result<SlotsReply, Error>>) -> Option<SlotsReply> {
    timeout(PATIENCE, told).await.ok()?.ok()
}

fn place_of(address: &Address) -> Option<NodeAddr> {
    match &address.endpoint {
        Endpoint::Tcp { host, port } | Endpoint::Tls { host, port, .. } => Some(NodeAddr {
            host: host.as_str().to_owned(),
            port: *port,
        }),
        Endpoint::Unix { .. } => None,
    }
}
