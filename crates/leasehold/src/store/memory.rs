//! The memory store, for tests and for programs of one process.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::annotation::{self, Annotation, AnnotationKind};
use leasehold_core::latch::{self, Arrival, LatchRecord, LatchRefusal, LatchStatus};
use leasehold_core::lock_event::REVOCATION_RETENTION;
use leasehold_core::mutex::{self, Loss, Record};
use leasehold_core::{ClientId, Instant, LeaseId, Outcome, StoreTime, Waiter};

use crate::clock::{BootClock, Clock};
use crate::store::api::private::Sealed;
use crate::store::api::{
    BoxFuture, Capabilities, ClientInfo, Event, HolderInfo, Key, Keyspace, Listener, Page, Parts,
    Query, Reply, Request, Store, View, WaiterInfo, WakeupMode, check_unreplicated, latch_refused,
    refuse_replicated, used_as_latch,
};
use crate::store::lock::lock;
use crate::store::observers::{Observers, visible};
use crate::{Error, ErrorKind, Result};

/// The number of records, annotations and latches from which unused ones are removed.
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
    records: HashMap<Key, Record>,
    /// With the time until which they are kept.
    annotations: HashMap<(Key, AnnotationKind), (Annotation, StoreTime)>,
    latches: HashMap<Key, LatchRecord>,
    /// The lease that was revoked last, for observers, with the time until which it is kept.
    revocations: HashMap<Key, (LeaseId, StoreTime)>,
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

    /// Changes a latch by the rule, and notifies its observers.
    fn change_latch<T>(
        &self,
        key: &Key,
        change: impl FnOnce(&Record, &mut Option<LatchRecord>, StoreTime) -> Result<T, LatchRefusal>,
    ) -> Result<T> {
        let mut tables = lock(&self.tables);
        let now = self.now();
        let free = Record::default();
        let mut stored = tables.latches.remove(key);
        let before = stored.as_ref().map(LatchRecord::status);
        let changed = change(tables.records.get(key).unwrap_or(&free), &mut stored, now);
        let after = stored.as_ref().map(LatchRecord::status);
        tables
            .latches
            .extend(stored.map(|latch| (key.clone(), latch)));
        tables.collect_garbage(now);
        drop(tables);
        if before != after {
            self.observers.notify(key);
        }
        changed.map_err(|refusal| named(latch_refused(refusal), key))
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Tables {
    /// Applies an operation. Adds its notifications, and its name if it has changed what observers read.
    fn apply<'a>(
        &mut self,
        request: &'a Request,
        now: StoreTime,
        notifications: &mut Vec<Notification>,
        changed: &mut Vec<&'a Key>,
    ) -> Reply {
        if let Err(error) = self.refuse_latch(&request.key, now) {
            return Reply::Rejected(named(error, &request.key));
        }
        let Self {
            records,
            listeners,
            revocations,
            ..
        } = self;
        let listener = |client| listeners.get(&client).and_then(Weak::upgrade);
        let record = match records.get_mut(&request.key) {
            Some(record) => record,
            None => records.entry(request.key.clone()).or_default(),
        };
        let before = visible(record, now);
        let outcome = mutex::apply(record, &request.op, now, |notice| {
            let listener = listener(notice.lease().client);
            let reachable = listener.is_some();
            let event = Event::Notice(request.key.clone(), *notice);
            notifications.extend(listener.map(|listener| (listener, event)));
            reachable
        });
        if visible(record, now) != before {
            changed.push(&request.key);
        }
        if let Outcome::Revoked { lease: Some(lease) } = outcome {
            let revoked = (lease, now.after_span(REVOCATION_RETENTION));
            revocations.insert(request.key.clone(), revoked);
        }
        let now = Some(now);
        Reply::Applied { outcome, now }
    }

    /// Refuses an operation on a lock whose name is used as a latch.
    fn refuse_latch(&self, key: &Key, now: StoreTime) -> Result<()> {
        match self.latches.get(key) {
            Some(latch) if latch.is_kept(now) => Err(used_as_latch()),
            _ => Ok(()),
        }
    }

    /// The lease that was revoked last.
    fn revoked(&self, key: &Key, now: StoreTime) -> Option<LeaseId> {
        let (lease, until) = self.revocations.get(key)?;
        (now < *until).then_some(*lease)
    }

    /// Stores an annotation by the rule.
    fn annotate(
        &mut self,
        key: &Key,
        kind: &AnnotationKind,
        annotation: &Annotation,
        now: StoreTime,
        until: StoreTime,
    ) -> Result<(), Loss> {
        let free = Record::default();
        let record = self.records.get(key).unwrap_or(&free);
        let mut stored = None;
        annotation::annotate(record, &mut stored, annotation.clone(), now)?;
        let stored = stored.map(|annotation| ((key.clone(), kind.clone()), (annotation, until)));
        self.annotations.extend(stored);
        Ok(())
    }

    /// Removes an annotation. Returns whether there was one.
    fn remove_annotation(&mut self, key: &Key, kind: &AnnotationKind, now: StoreTime) -> bool {
        let removed = self.annotations.remove(&(key.clone(), kind.clone()));
        removed.is_some_and(|(_, until)| now < until)
    }

    fn annotation(&self, key: &Key, kind: &AnnotationKind, now: StoreTime) -> Option<&Annotation> {
        let (annotation, until) = self.annotations.get(&(key.clone(), kind.clone()))?;
        (now < *until).then_some(annotation)
    }

    /// Removes free records and everything that has expired, whenever the tables have doubled since the last time.
    ///
    /// A free record is kept as long as its counter is ahead of the clock. The clock of this store is never set
    /// back, so after that a new record would issue the same tokens.
    fn collect_garbage(&mut self, now: StoreTime) {
        let used = self.records.len() + self.annotations.len() + self.latches.len();
        if used < self.gc_at.max(GC_MIN) {
            return;
        }
        self.records.retain(|_, record| {
            let counts = record
                .last_token
                .is_some_and(|last| last.get() >= now.as_micros());
            counts || record.holder(now).is_some() || now < record.queue.until()
        });
        self.clients.retain(|_, (_, until)| now < *until);
        self.annotations.retain(|_, (_, until)| now < *until);
        self.revocations.retain(|_, (_, until)| now < *until);
        self.latches.retain(|_, latch| latch.is_kept(now));
        self.gc_at = (self.records.len() + self.annotations.len() + self.latches.len()) * 2;
    }

    /// Reads parts of the state of a name.
    fn view(&self, key: &Key, parts: &Parts, now: StoreTime) -> Result<View> {
        if *parts == Parts::Latch {
            return self.latch(key, now);
        }
        self.refuse_latch(key, now)?;
        let mut view = View::of(key.clone());
        view.now = Some(now);
        if let Some(record) = self.records.get(key) {
            view.token = record.last_token;
            view.queue_length = visible(record, now).1;
            view.holder = record.holder(now).map(|hold| HolderInfo {
                lease: hold.lease,
                count: hold.count.get(),
                time_left: now.until(hold.expires_at),
                client: self.client_info(hold.lease.client, now),
            });
            if *parts == Parts::Waiters {
                let waiters = record.queue.waiters().take(view.queue_length);
                let waiter = |waiter: &Waiter| WaiterInfo {
                    lease: waiter.lease,
                    client: self.client_info(waiter.lease.client, now),
                };
                view.waiters = waiters.take(View::WAITERS_MAX).map(waiter).collect();
            }
        }
        view.revoked = self.revoked(key, now);
        if let Parts::Annotation(kind) | Parts::State(kind) = parts {
            let annotation = self.annotation(key, kind, now);
            let annotation = annotation.map(|annotation| (kind.clone(), annotation.clone()));
            view.annotations.extend(annotation);
        }
        Ok(view)
    }

    /// Reads the status of a latch.
    fn latch(&self, key: &Key, now: StoreTime) -> Result<View> {
        let latch = self.latches.get(key).filter(|latch| latch.is_kept(now));
        if let (None, Some(record)) = (latch, self.records.get(key)) {
            latch::check_lock(record, now).map_err(latch_refused)?;
        }
        let latch = latch.map(LatchRecord::status);
        let view = View::of(key.clone());
        Ok(View { latch, ..view })
    }

    /// The locks of a keyspace that are held.
    fn held(&self, space: &Keyspace, now: StoreTime) -> Result<Vec<View>> {
        let records = self.records.iter();
        let held =
            records.filter(|(key, record)| key.space == *space && record.holder(now).is_some());
        let views = held.map(|(key, _)| self.view(key, &Parts::Waiters, now));
        let mut views = views.collect::<Result<Vec<_>>>()?;
        views.sort_by(|a, b| a.key.name.cmp(&b.key.name));
        Ok(views)
    }

    /// The completions of a keyspace.
    fn completions(&self, space: &Keyspace, now: StoreTime) -> Vec<View> {
        let kept = self.annotations.iter().filter(|((key, kind), (_, until))| {
            key.space == *space && *kind != AnnotationKind::Value && now < *until
        });
        let mut found: Vec<_> = kept.collect();
        found.sort_by_key(|(name, _)| *name);
        let view = |((key, kind), (annotation, _)): (&(Key, AnnotationKind), &(Annotation, _))| {
            let mut view = View::of(key.clone());
            view.annotations.push((kind.clone(), annotation.clone()));
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

    fn annotate<'a>(
        &'a self,
        key: &'a Key,
        kind: &'a AnnotationKind,
        annotation: &'a Annotation,
        keep: Duration,
    ) -> BoxFuture<'a, Result<Result<(), Loss>>> {
        Box::pin(async move {
            let mut tables = lock(&self.tables);
            let now = self.now();
            let refused = tables.refuse_latch(key, now);
            refused.map_err(|error| named(error, key))?;
            let annotated = tables.annotate(key, kind, annotation, now, now.after_span(keep));
            tables.collect_garbage(now);
            drop(tables);
            if annotated.is_ok() {
                self.observers.notify(key);
            }
            Ok(annotated)
        })
    }

    fn remove_annotation<'a>(
        &'a self,
        key: &'a Key,
        kind: &'a AnnotationKind,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let removed = lock(&self.tables).remove_annotation(key, kind, self.now());
            if removed {
                self.observers.notify(key);
            }
            Ok(removed)
        })
    }

    fn arrive<'a>(
        &'a self,
        key: &'a Key,
        arrival: &'a Arrival,
    ) -> BoxFuture<'a, Result<LatchStatus>> {
        Box::pin(async move {
            self.change_latch(key, |lock, stored, now| {
                latch::arrive(lock, stored, arrival, now)
            })
        })
    }

    fn reset_latch<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { self.change_latch(key, latch::reset) })
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
