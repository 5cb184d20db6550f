//! The memory store, for tests and for programs of one process.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::mutex::{self, Record};
use leasehold_core::{ClientId, Instant, StoreTime};

use crate::clock::{BootClock, Clock};
use crate::store::api::private::Sealed;
use crate::store::api::{
    BoxFuture, Capabilities, ClientInfo, Detail, Entry, Event, Key, Keyspace, Listener, Reply,
    Request, Store, WaiterInfo, WakeupMode, refuse_replicated,
};
use crate::store::lock::lock;
use crate::{Error, ErrorKind, Result};

/// The number of records from which free ones are removed.
const GC_MIN: usize = 1024;

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
}

/// Notifications to send.
type Notification = (Arc<dyn Listener>, Event);

#[derive(Debug, Default)]
struct Tables {
    records: HashMap<Key, Record>,
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
        let mut notifications = Vec::new();
        let replies = batch
            .iter()
            .map(|request| tables.apply(request, now, &mut notifications))
            .collect();
        tables.collect_garbage(now);
        drop(tables);
        for (listener, event) in notifications {
            listener.notify(event);
        }
        replies
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Tables {
    fn apply(
        &mut self,
        request: &Request,
        now: StoreTime,
        notifications: &mut Vec<Notification>,
    ) -> Reply {
        let Self {
            records, listeners, ..
        } = self;
        let listener = |client| listeners.get(&client).and_then(Weak::upgrade);
        let record = match records.get_mut(&request.key) {
            Some(record) => record,
            None => records.entry(request.key.clone()).or_default(),
        };
        let outcome = mutex::apply(record, &request.op, now, |notice| {
            let listener = listener(notice.lease().client);
            let reachable = listener.is_some();
            let event = Event::Notice(request.key.clone(), *notice);
            notifications.extend(listener.map(|listener| (listener, event)));
            reachable
        });
        let now = Some(now);
        Reply::Applied { outcome, now }
    }

    /// Removes free records and expired clients, whenever the table has doubled since the last time.
    ///
    /// A free record is kept as long as its counter is ahead of the clock. The clock of this store is never set
    /// back, so after that a new record would issue the same tokens.
    fn collect_garbage(&mut self, now: StoreTime) {
        if self.records.len() < self.gc_at.max(GC_MIN) {
            return;
        }
        self.records.retain(|_, record| {
            let counts = record
                .last_token
                .is_some_and(|last| last.get() >= now.as_micros());
            counts || record.holder(now).is_some() || now < record.queue.until()
        });
        self.clients.retain(|_, (_, until)| now < *until);
        self.gc_at = self.records.len() * 2;
    }

    fn entry(&self, key: &Key, now: StoreTime, detail: Detail) -> Option<Entry> {
        let record = self.records.get(key)?;
        let hold = record.holder(now)?;
        let is_read = detail >= Detail::Waiters && now < record.queue.until();
        let queue = is_read.then(|| record.queue.waiters());
        let waiters = queue.into_iter().flatten().take(Entry::WAITERS_MAX);
        Some(Entry {
            key: key.clone(),
            lease: hold.lease,
            count: hold.count.get(),
            time_left: now.until(hold.expires_at),
            token: record.last_token,
            client: self.client_info(hold.lease.client, now),
            waiters: waiters
                .map(|waiter| WaiterInfo {
                    lease: waiter.lease,
                    client: self.client_info(waiter.lease.client, now),
                })
                .collect(),
        })
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

    fn inspect_with<'a>(
        &'a self,
        key: &'a Key,
        detail: Detail,
    ) -> BoxFuture<'a, Result<Option<Entry>>> {
        Box::pin(async move { Ok(lock(&self.tables).entry(key, self.now(), detail)) })
    }

    fn list<'a>(&'a self, space: &'a Keyspace) -> BoxFuture<'a, Result<Vec<Entry>>> {
        Box::pin(async move {
            let now = self.now();
            let tables = lock(&self.tables);
            let keys = tables.records.keys().filter(|key| key.space == *space);
            let mut entries: Vec<_> = keys
                .filter_map(|key| tables.entry(key, now, Detail::Waiters))
                .collect();
            entries.sort_by(|a, b| a.key.name.cmp(&b.key.name));
            Ok(entries)
        })
    }

    fn register_client<'a>(
        &'a self,
        _space: &'a Keyspace,
        client: ClientId,
        info: &'a ClientInfo,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let micros = u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX);
            let until = self.now().as_micros().saturating_add(micros);
            let entry = (info.clone(), StoreTime::from_micros(until));
            lock(&self.tables).clients.insert(client, entry);
            Ok(())
        })
    }
}

impl fmt::Display for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory:")
    }
}
