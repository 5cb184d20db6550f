//! The memory store, for tests and for programs of one process.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::annotation::{self, Annotation, AnnotationKind};
use leasehold_core::latch::{self, Arrival, LatchRecord, LatchRefusal, LatchStatus};
use leasehold_core::lock_event::REVOCATION_RETENTION;
use leasehold_core::mutex::{self, Loss, Record};
use leasehold_core::{ClientId, Instant, LeaseId, Outcome, StoreTime};

use crate::clock::{BootClock, Clock};
use crate::store::api::private::Sealed;
use crate::store::api::{
    BoxFuture, Capabilities, ClientInfo, Detail, Entry, Event, Key, Keyspace, LatchObservation,
    Listener, Observation, Reply, Request, Store, WaiterInfo, WakeupMode, latch_refused,
    refuse_replicated, used_as_latch,
};
use crate::store::lock::lock;
use crate::store::observation::visible;
use crate::store::observers::Observers;
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

    fn observe_now(&self, key: &Key, kind: &AnnotationKind) -> Result<Observation> {
        let changed = Some(self.observers.add(key));
        let tables = lock(&self.tables);
        let now = self.now();
        tables.refuse_latch(key, now)?;
        let record = tables.records.get(key);
        let holder = record.and_then(|record| record.holder(now));
        Ok(Observation {
            now,
            holder: holder.map(|hold| (hold.lease, now.until(hold.expires_at))),
            revoked: tables.revoked(key, now),
            waiters: record.map_or(0, |record| visible(record, now).1),
            annotation: tables.annotation(key, kind, now).cloned(),
            changed,
        })
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
        Box::pin(async move {
            let (tables, now) = (lock(&self.tables), self.now());
            let refused = tables.refuse_latch(key, now);
            refused.map_err(|error| named(error, key))?;
            Ok(tables.entry(key, now, detail))
        })
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
            let entry = (info.clone(), self.now().after_span(ttl));
            lock(&self.tables).clients.insert(client, entry);
            Ok(())
        })
    }

    fn client_info<'a>(
        &'a self,
        _space: &'a Keyspace,
        client: ClientId,
    ) -> BoxFuture<'a, Result<Option<ClientInfo>>> {
        Box::pin(async move { Ok(lock(&self.tables).client_info(client, self.now())) })
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

    fn completions<'a>(
        &'a self,
        space: &'a Keyspace,
    ) -> BoxFuture<'a, Result<Vec<(Key, AnnotationKind, Annotation)>>> {
        Box::pin(async move {
            let tables = lock(&self.tables);
            let now = self.now();
            let found = tables
                .annotations
                .iter()
                .filter(|((key, kind), (_, until))| {
                    key.space == *space && *kind != AnnotationKind::Value && now < *until
                });
            let found = found.map(|((key, kind), (annotation, _))| {
                (key.clone(), kind.clone(), annotation.clone())
            });
            let mut found: Vec<_> = found.collect();
            found.sort_by(|(a, a_kind, _), (b, b_kind, _)| (a, a_kind).cmp(&(b, b_kind)));
            Ok(found)
        })
    }

    fn observe<'a>(
        &'a self,
        key: &'a Key,
        kind: &'a AnnotationKind,
    ) -> BoxFuture<'a, Result<Observation>> {
        Box::pin(async move {
            let observed = self.observe_now(key, kind);
            observed.map_err(|error| named(error, key))
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

    fn observe_latch<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<LatchObservation>> {
        Box::pin(async move {
            let changed = Some(self.observers.add(key));
            let (tables, now) = (lock(&self.tables), self.now());
            let latch = tables.latches.get(key).filter(|latch| latch.is_kept(now));
            if let (None, Some(record)) = (latch, tables.records.get(key)) {
                let checked = latch::check_lock(record, now);
                checked.map_err(|refusal| named(latch_refused(refusal), key))?;
            }
            let latch = latch.map(LatchRecord::status);
            Ok(LatchObservation { latch, changed })
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
