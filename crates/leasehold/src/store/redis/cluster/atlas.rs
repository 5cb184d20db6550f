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
use super::super::batch::text;
use super::super::connection::{Link, Trouble};
use super::super::errors;
use super::map::{Map, Place, Told};
use super::node::Node;
use super::slots;
use crate::store::{Event, Key, Listener, OpenOptions, Reach, Shard, Space, Wakes};
use crate::{Error, Result};

/// How long a node may take to say who has which slot before another is asked.
const PATIENCE: Duration = Duration::from_millis(250);

/// How long what a node said is taken for new. Many who find out the same ask once.
const FRESH: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Atlas {
    seeds: Vec<Address>,
    options: OpenOptions,
    map: Arc<Chart>,
    known: Mutex<Known>,
    /// Held while a node is asked who has which slot: whoever wants to know waits for the one answer.
    /// Keeps when that was last.
    asking: tokio::sync::Mutex<Option<Instant>>,
    /// How often a node was asked.
    asked: AtomicU64,
}

/// The map of this moment.
#[derive(Debug)]
struct Chart(RwLock<Arc<Map>>);

#[derive(Debug, Default)]
struct Known {
    nodes: HashMap<Place, Arc<Node>>,
    /// The number of each place there ever was: some bytes for each.
    numbers: HashMap<Place, Shard>,
    clients: HashMap<ClientId, Client>,
}

#[derive(Debug)]
struct Client {
    space: Space,
    listener: Weak<dyn Listener>,
    ears: HashMap<Shard, Arc<Ear>>,
}

/// Takes the news of a node for a client, as long as it is the node's to tell them.
#[derive(Debug)]
struct Ear {
    shard: Shard,
    map: Arc<Chart>,
    listener: Weak<dyn Listener>,
}

impl Atlas {
    /// Nothing is known, and nothing connected.
    pub(super) fn new(seeds: Vec<Address>, options: OpenOptions) -> Self {
        Self {
            seeds,
            options,
            map: Arc::new(Chart(RwLock::new(Arc::new(Map::empty())))),
            known: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            asked: AtomicU64::new(0),
        }
    }

    pub(super) fn options(&self) -> &OpenOptions {
        &self.options
    }

    pub(super) fn map(&self) -> Arc<Map> {
        self.map.now()
    }

    pub(super) fn shard(&self, key: &Key) -> Shard {
        self.map.shard(key).unwrap_or(Shard(0))
    }

    /// Asks all seeds for the map, and takes that of the first that answers.
    pub(super) async fn discover(&self) -> Result<()> {
        let ask = |seed: &Address| {
            let (seed, options) = (seed.clone(), &self.options);
            let place = place_of(&seed).ok_or_else(errors::strange_answer);
            let link = Link::new(seed, options.connect_timeout, options.response_timeout);
            async move {
                let told = ask(&link, &place?).await;
                told.map_err(|error| error.at_store(link.place()))
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
    pub(super) async fn refresh(&self, first: Option<&Place>) -> bool {
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
    async fn ask_any(&self, first: Option<&Place>) -> Option<Told> {
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
            well.sort_by_key(|node| node.place != *first);
        }
        let (ill, well): (Vec<_>, Vec<_>) = well.into_iter().partition(|node| node.is_doubtful());
        for node in &well {
            if let Some(told) = within(ask(&node.link, &node.place)).await {
                return Some(told);
            }
        }
        let replicas = map.replicas().iter();
        let replicas = replicas.map(|place| self.seeds[0].at(&place.host, place.port));
        let others = replicas.chain(self.seeds.iter().cloned());
        for address in others {
            let Some(place) = place_of(&address) else {
                continue;
            };
            if ill.iter().any(|node| node.place == place) {
                continue;
            }
            let link = Link::new(address, PATIENCE, PATIENCE);
            if let Some(told) = within(ask(&link, &place)).await {
                return Some(told);
            }
        }
        for node in &ill {
            if let Some(told) = within(ask(&node.link, &node.place)).await {
                return Some(told);
            }
        }
        None
    }

    /// The node at a place, which is asked who it is if nobody knows.
    pub(super) async fn find(&self, place: &Place) -> Result<Arc<Node>> {
        if let Some(node) = self.known().nodes.get(place) {
            return Ok(Arc::clone(node));
        }
        let address = self.seeds[0].at(&place.host, place.port);
        let options = &self.options;
        let link = Link::new(address, options.connect_timeout, options.response_timeout);
        let id = tell(&link, &["CLUSTER", "MYID"]).await?;
        let id = text(&id).filter(|id| !id.is_empty());
        let id = id.ok_or_else(errors::strange_answer)?;
        let mut known = self.known();
        let node = known.node(place, &id, self);
        known.introduce(&node, &self.map);
        Ok(node)
    }

    /// Notes that a slot belongs to the node at a place, if that is known.
    pub(super) fn moved(&self, slot: u16, place: &Place) {
        let told = {
            let known = self.known();
            let Some(node) = known.nodes.get(place) else {
                return;
            };
            let mut map = Map::clone(&self.map());
            map.set(slot, node);
            known.take_up(map, &self.map)
        };
        tell_all(told);
    }

    fn learn(&self, told: &Told) {
        let told = {
            let mut known = self.known();
            let masters = told.masters.iter();
            let nodes: Vec<_> = masters
                .map(|master| known.node(&master.place, &master.id, self))
                .collect();
            for node in &nodes {
                known.introduce(node, &self.map);
            }
            let map = Map::new(told, &nodes);
            let is_there =
                |node: &Arc<Node>| map.nodes().iter().any(|there| Arc::ptr_eq(there, node));
            known.nodes.retain(|_, node| is_there(node));
            known.take_up(map, &self.map)
        };
        tell_all(told);
    }

    pub(super) fn listen(&self, space: &Space, client: ClientId, listener: Weak<dyn Listener>) {
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
            node.link.forget(client);
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
            listener.hear(event);
        }
    }

    /// How they are woken who were refused: as the least of the nodes can do it.
    pub(super) fn wakes(&self) -> Wakes {
        let map = self.map();
        let wakes = map.nodes().iter().map(|node| node.link.listeners().wakes());
        let rank = |wakes: &Wakes| match wakes {
            Wakes::Grants => 2,
            Wakes::Changes => 1,
            Wakes::Nothing => 0,
        };
        wakes.min_by_key(rank).unwrap_or(Wakes::Grants)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // No panic can leave it half changed: each change is one call.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// The node at a place. Another that came there has the number of the first.
    fn node(&mut self, place: &Place, id: &str, atlas: &Atlas) -> Arc<Node> {
        if let Some(node) = self.nodes.get(place)
            && node.id() == id
        {
            return Arc::clone(node);
        }
        let next = Shard(u32::try_from(self.numbers.len()).unwrap_or(u32::MAX));
        let shard = *self.numbers.entry(place.clone()).or_insert(next);
        let (seed, options) = (&atlas.seeds[0], &atlas.options);
        let node = Arc::new(Node::new(seed, place.clone(), id, shard, options));
        self.nodes.insert(place.clone(), Arc::clone(&node));
        node
    }

    /// Has a node tell all who listen.
    fn introduce(&mut self, node: &Node, map: &Arc<Chart>) {
        let listeners = node.link.listeners();
        for (id, client) in &mut self.clients {
            if listeners.has(*id) {
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
            listeners.add(&client.space, *id, Arc::downgrade(&ear));
        }
    }

    /// Takes up a map, and answers what is to be told of it to whom.
    ///
    /// A node that had no slots and has those of one that has none any more took its place: it may not
    /// know what that one did last. Else slots have moved with all that is in them.
    fn take_up(&self, map: Map, chart: &Chart) -> Vec<(Arc<dyn Listener>, Event)> {
        let old = chart.now();
        let mut events = Vec::<Event>::new();
        for slot in 0..slots::SLOTS {
            let (Some(before), Some(now)) = (old.owner(slot), map.owner(slot)) else {
                continue;
            };
            if Arc::ptr_eq(before, now) {
                continue;
            }
            let has_slots = |map: &Map, node: &Arc<Node>| {
                (0..slots::SLOTS).any(|slot| {
                    map.owner(slot)
                        .is_some_and(|owner| Arc::ptr_eq(owner, node))
                })
            };
            let moved = Event::Moved(Reach::Shard(now.shard));
            let interrupted = Event::Interrupted(Reach::Shard(now.shard));
            if events.contains(&moved) || events.contains(&interrupted) {
                continue;
            }
            let failed_over = !has_slots(&old, now) && !has_slots(&map, before);
            events.push(if failed_over { interrupted } else { moved });
        }
        chart.take(map);
        let clients = self.clients.values();
        let listeners = clients.filter_map(|client| client.listener.upgrade());
        let listeners: Vec<_> = listeners.collect();
        let each = |event: Event| {
            let told = listeners.iter().cloned();
            told.map(move |listener| (listener, event.clone()))
                .collect::<Vec<_>>()
        };
        events.into_iter().flat_map(each).collect()
    }
}

impl Chart {
    fn now(&self) -> Arc<Map> {
        let map = self.0.read();
        Arc::clone(&map.unwrap_or_else(PoisonError::into_inner))
    }

    fn take(&self, map: Map) {
        let mut now = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *now = Arc::new(map);
    }

    fn shard(&self, key: &Key) -> Option<Shard> {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        map.owner(slots::of(key)).map(|node| node.shard)
    }
}

impl Listener for Ear {
    fn hear(&self, event: Event) {
        let Some(listener) = self.listener.upgrade() else {
            return;
        };
        listener.hear(match event {
            // It says when by its own clock, and nobody knows by whose the question was answered.
            Event::Told(key, Notice::Granted(_)) if self.map.shard(&key) != Some(self.shard) => {
                Event::Moved(Reach::Record(key))
            }
            Event::Interrupted(Reach::Store) => Event::Interrupted(Reach::Shard(self.shard)),
            event => event,
        });
    }
}

/// Not under a lock: a listener may be the last to hold something that forgets a client.
fn tell_all(told: Vec<(Arc<dyn Listener>, Event)>) {
    for (listener, event) in told {
        listener.hear(event);
    }
}

/// Asks a node who has which slot.
async fn ask(link: &Link, place: &Place) -> Result<Told> {
    let answer = tell(link, &["CLUSTER", "SLOTS"]).await?;
    let told = Told::parse(&answer, place).ok_or_else(errors::strange_answer)?;
    match told.masters.is_empty() {
        // It was not told of the others yet, or was thrown out.
        true => Err(errors::slots_without_node(slots::SLOTS.into())),
        false => Ok(told),
    }
}

async fn tell(link: &Link, words: &[&str]) -> Result<Value> {
    let mut command = cmd(words[0]);
    command.arg(&words[1..]);
    let asked = |mut connection: MultiplexedConnection| async move {
        connection.send_packed_command(&command).await
    };
    match link.exchange(asked).await {
        Ok(Value::ServerError(error)) => Err(errors::of_cluster(&error)),
        Ok(answer) => Ok(answer),
        Err(Trouble::NotSent(error) | Trouble::Unanswered(error)) => Err(error),
    }
}

async fn within(told: impl Future<Output = Result<Told, Error>>) -> Option<Told> {
    timeout(PATIENCE, told).await.ok()?.ok()
}

fn place_of(address: &Address) -> Option<Place> {
    match &address.endpoint {
        Endpoint::Tcp { host, port } | Endpoint::Tls { host, port, .. } => Some(Place {
            host: host.as_str().to_owned(),
            port: *port,
        }),
        Endpoint::Unix { .. } => None,
    }
}
