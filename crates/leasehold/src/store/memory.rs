//! The memory store, for tests and for programs of one process.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::record::Note;
use leasehold_core::{ClientId, Environment, Instant, Name, Op, Rows, Slot, StoreTime, Waiter};

use crate::clock::{BootClock, Clock};
use crate::store::api::private::Sealed;
use crate::store::api::{
    BoxFuture, Capabilities, ClientInfo, Event, Key, Keyspace, Listener, Listening, Page, Parts,
    Query, Reply, Request, Shard, Store, StoreKind, View, WaiterInfo, WakeupMode, mismatch,
};
use crate::store::lock::lock;
use crate::store::observers::Observers;
use crate::{Error, ErrorKind, Result};

/// The number of records from which unused ones are removed.
const GC_MIN: usize = 1024;

const URL: &str = "memory:";

/// Lock records in the memory of this process.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let client = leasehold::Client::connect("memory:").await?;
/// let guard = client.mutex("report")?.lock().await?;
/// assert!(client.mutex("report")?.try_lock().await?.is_none());
/// guard.release().await?;
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    /// The time of the store at the start of the clock. The wall clock is read once, so that setting it does not
    /// move leases.
    start: Duration,
    tables: Arc<Mutex<Tables>>,
    observers: Observers,
}

/// Notifications to send.
type Notification = (Arc<dyn Listener>, Event);

#[derive(Debug, Default)]
struct Tables {
    records: HashMap<Key, Rows>,
    listeners: HashMap<ClientId, Weak<dyn Listener>>,
    gc_at: usize,
}

impl MemoryStore {
    /// An empty store on the clock of this machine.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Arc::new(BootClock))
    }

    /// An empty store on another clock, for tests that control the time.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let start = wall.saturating_sub(clock.now().since(Instant::default()));
        Self {
            clock,
            start,
            tables: Arc::default(),
            observers: Observers::default(),
        }
    }

    pub(super) fn open(url: &str) -> Result<Self> {
        match url {
            "memory:" | "memory://" => Ok(Self::new()),
            _ => Err(Error::new(
                ErrorKind::InvalidConfig,
                "nothing may follow memory: in its URL",
            )),
        }
    }

    fn now(&self) -> StoreTime {
        let running = self.clock.now().since(Instant::default());
        let micros = (self.start + running).as_micros();
        StoreTime::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    fn apply_now(&self, batch: &[Request]) -> Vec<Reply> {
        let mut tables = lock(&self.tables);
        let now = self.now();
        let (mut notifications, mut changed) = (Vec::new(), Vec::new());
        let apply = |request| tables.apply(request, now, &mut notifications, &mut changed);
        let replies = batch.iter().map(apply).collect();
        tables.collect_garbage(now);
        drop(tables);
        for (listener, event) in notifications {
            listener.notify(event);
        }
        for key in changed {
            self.observers.notify(key);
        }
        replies
    }

    fn read_now(&self, query: &Query) -> Result<Page> {
        StoreKind::Memory.check_query(query, self)?;
        if let Query::Name { key, parts, watch } = query {
            let changed = watch.then(|| self.observers.add(key));
            let (tables, now) = (lock(&self.tables), self.now());
            let view = tables.view(key, parts, now);
            return Ok(Page::of(view.map_err(|error| named(error, key))?, changed));
        }
        let (tables, now) = (lock(&self.tables), self.now());
        match query {
            Query::Name { .. } => Ok(Page::default()),
            Query::Names(space) => Ok(Page::listed(tables.held(space, now)?)),
            Query::Completions(space) => Ok(Page::listed(tables.completions(space, now))),
            Query::Client(space, client) => Ok(Page {
                client: tables.client_info(space, *client, now),
                ..Page::default()
            }),
            Query::Durability(_) => Ok(Page::default()),
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Tables {
    /// Applies an operation. Adds its notifications, and its name if observers see a difference.
    fn apply<'a>(
        &mut self,
        request: &'a Request,
        now: StoreTime,
        notifications: &mut Vec<Notification>,
        changed: &mut Vec<&'a Key>,
    ) -> Reply {
        let Self {
            records, listeners, ..
        } = self;
        let key = &request.key;
        let record = match records.get_mut(key) {
            Some(record) => record,
            None => records.entry(key.clone()).or_default(),
        };
        let listener = |client| listeners.get(&client).and_then(Weak::upgrade);
        let reaches = |client| listener(client).is_some();
        let environment = Environment { now };
        let mut applied = record.apply(&request.op, &environment, reaches);
        let outcome = applied.outcome;
        loop {
            for notice in applied.notices {
                let listener = listener(notice.lease().client);
                let event = Event::Notice(key.clone(), notice);
                notifications.extend(listener.map(|listener| (listener, event)));
            }
            if applied.is_visible {
                changed.push(key);
            }
            if !applied.unfinished {
                break;
            }
            applied = record.apply(&Op::Serve, &environment, reaches);
        }
        Reply::decided(key, outcome, now).map_error(|error| error.at_store(URL))
    }

    /// Removes what has ended, whenever the tables have doubled since the last time.
    ///
    /// The clock of this store is never set back, so a record whose counter is behind it is not needed.
    fn collect_garbage(&mut self, now: StoreTime) {
        if self.records.len() < self.gc_at.max(GC_MIN) {
            return;
        }
        let environment = Environment { now };
        self.records.retain(|_, record| {
            record.remove_ended_notes(&environment);
            record.is_needed(&environment)
        });
        self.gc_at = self.records.len() * 2;
    }

    /// Reads parts of the state of a name.
    fn view(&self, key: &Key, parts: &Parts, now: StoreTime) -> Result<View> {
        let environment = Environment { now };
        let unused = Rows::default();
        let record = self.records.get(key).unwrap_or(&unused);
        let holder = record.holders(&environment).next();
        let mut view =
            View::of_head(key.clone(), record.head(), holder, parts, now).map_err(mismatch)?;
        if let Some(holder) = &mut view.holder {
            holder.client = self.client_info(&key.space, holder.lease.client, now);
        }
        if *parts == Parts::Waiters {
            let waiter = |waiter: &Waiter| WaiterInfo {
                lease: waiter.lease,
                client: self.client_info(&key.space, waiter.lease.client, now),
            };
            let waiters = record.waiters(&environment).take(View::WAITERS_MAX);
            view.waiters = waiters.map(waiter).collect();
        }
        if let Parts::Annotation(slot) | Parts::State(slot) = parts {
            let note = record.note(slot, &environment);
            view.annotations
                .extend(note.map(|note| (slot.clone(), note.into())));
        }
        Ok(view)
    }

    /// The locks of a keyspace that are held.
    fn held(&self, space: &Keyspace, now: StoreTime) -> Result<Vec<View>> {
        let environment = Environment { now };
        let held = self.records.iter().filter(|(key, record)| {
            key.space == *space && record.holders(&environment).next().is_some()
        });
        let views = held.map(|(key, _)| self.view(key, &Parts::Waiters, now));
        let mut views = views.collect::<Result<Vec<_>>>()?;
        views.sort_by(|a, b| a.key.name.cmp(&b.key.name));
        Ok(views)
    }

    /// The completions of a keyspace.
    fn completions(&self, space: &Keyspace, now: StoreTime) -> Vec<View> {
        let environment = Environment { now };
        let records = self.records.iter().filter(|(key, _)| key.space == *space);
        let notes = records.flat_map(|(key, record)| {
            let notes = record.notes(&environment);
            notes.map(move |(slot, note)| (key, slot, note))
        });
        let mut found: Vec<_> = notes.filter(|(_, slot, _)| **slot != Slot::Value).collect();
        found.sort_by_key(|(key, slot, _)| (*key, *slot));
        let view = |(key, slot, note): (&Key, &Slot, &Note)| {
            let mut view = View::of(key.clone());
            view.annotations.push((slot.clone(), note.into()));
            view
        };
        found.into_iter().map(view).collect()
    }

    fn client_info(
        &self,
        space: &Keyspace,
        client: ClientId,
        now: StoreTime,
    ) -> Option<ClientInfo> {
        let record = self.records.get(&space.key(Name::of_client(client)))?;
        ClientInfo::from_text(&record.description(&Environment { now })?.text)
    }
}

impl Sealed for MemoryStore {}

impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(StoreKind::Memory, WakeupMode::Grants)
    }

    fn shard(&self, _key: &Key) -> Shard {
        Shard(0)
    }

    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        Box::pin(StoreKind::Memory.apply(batch, self, async |batch| self.apply_now(&batch)))
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Result<Page>> {
        Box::pin(async move { self.read_now(&query) })
    }

    fn listen(&self, _space: &Keyspace, client: ClientId, to: Weak<dyn Listener>) -> Listening {
        lock(&self.tables).listeners.insert(client, to);
        let tables = Arc::downgrade(&self.tables);
        Listening::new(move || {
            if let Some(tables) = tables.upgrade() {
                lock(&tables).listeners.remove(&client);
            }
        })
    }
}

impl fmt::Display for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(URL)
    }
}

fn named(error: Error, key: &Key) -> Error {
    error.for_lock(&key.name).at_store(URL)
}
