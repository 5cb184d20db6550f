//! The memory store, for tests and for programs of one process.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::record::Note;
use leasehold_core::{ClientId, Environment, Instant, Op, Rows, Slot, StoreTime, Waiter};

use crate::clock::{BootClock, Clock};
use crate::store::api::private::Sealed;
use crate::store::api::{
    BoxFuture, Capabilities, ClientInfo, Event, Key, Keyspace, Listener, Page, Parts, Query, Reply,
    Request, Store, View, WaiterInfo, WakeupMode, check_unreplicated, decided, mismatch,
    refuse_replicated,
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
    tables: Mutex<Tables>,
    observers: Observers,
}

/// Notifications to send.
type Notification = (Arc<dyn Listener>, Event);

#[derive(Debug, Default)]
struct Tables {
    records: HashMap<Key, Rows>,
    /// With the time until which they are kept.
    clients: HashMap<ClientId, (ClientInfo, StoreTime)>,
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
            tables: Mutex::default(),
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
        if let Some(refused) = refuse_replicated(batch, self) {
            return refused;
        }
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
            Query::Client(_, client) => Ok(Page {
                client: tables.client_info(*client, now),
                ..Page::default()
            }),
            Query::Durability(durability) => check_unreplicated(*durability, self),
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
            if applied.changed {
                changed.push(key);
            }
            if !applied.unfinished {
                break;
            }
            applied = record.apply(&Op::SERVE, &environment, reaches);
        }
        decided(key, outcome, now).map_error(|error| error.at_store(URL))
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
        self.clients.retain(|_, (_, until)| now < *until);
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
            holder.client = self.client_info(holder.lease.client, now);
        }
        if *parts == Parts::Waiters {
            let waiter = |waiter: &Waiter| WaiterInfo {
                lease: waiter.lease,
                client: self.client_info(waiter.lease.client, now),
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

    fn client_info(&self, client: ClientId, now: StoreTime) -> Option<ClientInfo> {
        let (info, until) = self.clients.get(&client)?;
        (now < *until).then(|| info.clone())
    }
}

impl Sealed for MemoryStore {}

impl Store for MemoryStore {
    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        Box::pin(async move { self.apply_now(&batch) })
    }

    fn listen(&self, _space: &Keyspace, client: ClientId, listener: Weak<dyn Listener>) {
        lock(&self.tables).listeners.insert(client, listener);
    }

    fn forget(&self, client: ClientId) {
        lock(&self.tables).listeners.remove(&client);
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(WakeupMode::Grants)
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Result<Page>> {
        Box::pin(async move { self.read_now(&query) })
    }

    fn register_client<'a>(
        &'a self,
        _space: &'a Keyspace,
        client: ClientId,
        info: &'a ClientInfo,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let entry = (info.clone(), self.now().after_span(ttl));
            lock(&self.tables).clients.insert(client, entry);
            Ok(())
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
