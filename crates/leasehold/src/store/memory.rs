//! The memory store, for tests and for programs of one process.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::record::{Head, Note};
use leasehold_core::{ClientId, Environment, Instant, Name, Rows, Slot, StoreTime};

use crate::Result;
use crate::clock::{BootClock, Clock};
use crate::error::invalid;
use crate::store::api::{Capabilities, Key, Keyspace, Page, Reply, StoreKind, WakeupMode};
use crate::store::backend::Backend;
use crate::store::lock::lock;
use crate::store::query::RunningQuery;
use crate::store::records::{ListPart, Record, Records, Transaction};
use crate::store::rule_store::RuleStore;
use crate::store::work::Work;

/// The number of records from which unused ones are removed.
const GC_MIN: usize = 1024;

/// Lock records in the memory of this process. Each client on a store stands for a process. `memory:` is a store of one
/// client.
///
/// A test moves the time by a [`ManualClock`](crate::clock::ManualClock), which it gives to the store and to each client:
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::sync::Arc;
/// use std::time::Duration;
/// use leasehold::clock::ManualClock;
/// use leasehold::store::MemoryStore;
/// use leasehold::{Client, LeaseOptions};
///
/// let clock = ManualClock::new();
/// let store = Arc::new(MemoryStore::with_clock(Arc::new(clock.clone())));
/// let client = || Client::builder().clock(Arc::new(clock.clone())).connect(Arc::clone(&store));
/// let (dead, next) = (client().await?, client().await?);
///
/// // A fixed lease is not renewed, as the lease of a dead process.
/// let fixed = LeaseOptions::new().fixed(Duration::from_secs(30));
/// let _guard = dead.mutex("report")?.with(fixed)?.lock().await?;
/// assert!(next.mutex("report")?.try_lock().await?.is_none());
/// clock.advance(Duration::from_secs(30));
/// assert!(next.mutex("report")?.try_lock().await?.is_some());
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
pub type MemoryStore = RuleStore<Memory>;

impl MemoryStore {
    /// An empty store on the clock of this machine.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Arc::new(BootClock))
    }

    /// An empty store on another clock, for tests that control the time. Its clients need the same clock:
    /// [`ClientBuilder::clock`](crate::ClientBuilder::clock).
    ///
    /// A time such as [`LockInfo::since`](crate::LockInfo::since) and [`Completion::started`](crate::Completion::started) is
    /// the time of the machine at this call, plus what has passed on the clock since.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let running = clock.now().since(Instant::default());
        Self::over(Memory {
            start: wall.unwrap_or_default().saturating_sub(running),
            clock,
            table: Mutex::default(),
        })
    }

    pub(super) fn open(url: &str) -> Result<Self> {
        let message = "nothing may follow memory: in its URL";
        match url {
            "memory:" | "memory://" => Ok(Self::new()),
            _ => Err(invalid(message)),
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

/// Records in a map, and their clock.
#[derive(Debug)]
pub struct Memory {
    clock: Arc<dyn Clock>,
    /// The time of the store at the start of the clock. The wall clock is read once, so that setting it does not
    /// move leases.
    start: Duration,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    records: HashMap<Key, Rows>,
    /// The number of records from which unused ones are removed the next time.
    gc_at: usize,
}

impl Memory {
    /// Runs a transaction, in which nothing can fail.
    fn locked<T>(&self, run: impl FnOnce(&mut LockedTable<'_>) -> Result<T, Infallible>) -> T {
        let mut table = lock(&self.table);
        let running = self.clock.now().since(Instant::default());
        let now = StoreTime::default().after_span(self.start + running);
        let records = &mut table.records;
        let Ok(result) = run(&mut LockedTable { records, now });
        table.collect_garbage(now);
        result
    }
}

impl Backend for Memory {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(StoreKind::Memory, WakeupMode::Grants)
    }

    async fn transact(&self, mut work: Work) -> Result<Vec<Reply>> {
        self.locked(|records| work.run(records));
        let (replies, mut rest) = work.finish();
        while let Some(mut work) = rest {
            self.locked(|records| work.run(records));
            (_, rest) = work.finish();
        }
        Ok(replies)
    }

    async fn read(&self, mut query: RunningQuery) -> Result<Page> {
        while self.locked(|records| query.step(records)) {}
        query.finish()
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory:")
    }
}

impl Table {
    /// Removes what has ended, whenever the table has doubled since the last time.
    ///
    /// The clock of this store is never set back, so a record whose counter is behind it is not needed.
    fn collect_garbage(&mut self, now: StoreTime) {
        if self.records.len() < self.gc_at.max(GC_MIN) {
            return;
        }
        let environment = Environment::at(now);
        self.records.retain(|_, record| {
            record.remove_ended_notes(&environment);
            record.is_needed(&environment)
        });
        self.gc_at = self.records.len() * 2;
    }
}

/// A list, which is read at once and cannot fail.
type Listed<T> = Result<ListPart<T>, Infallible>;

/// The records in a transaction.
struct LockedTable<'a> {
    records: &'a mut HashMap<Key, Rows>,
    now: StoreTime,
}

impl Records for LockedTable<'_> {
    type Error = Infallible;

    fn environment(&self, _: &Key) -> Environment {
        Environment::at(self.now)
    }

    fn record<'a, F>(&'a mut self, key: &'a Key, mut reaches: F) -> impl Record<Error = Infallible>
    where
        F: FnMut(ClientId) -> Option<bool> + 'a,
    {
        let rows = self.records.entry(key.clone()).or_default();
        rows.source_mut(move |client| reaches(client).unwrap_or(false))
    }

    fn heads(&mut self, space: &Keyspace, _: &str) -> Listed<(Name, Head)> {
        let records = self.records.iter().filter(|(key, _)| key.space == *space);
        let heads = records.map(|(key, rows)| (key.name.clone(), *rows.head()));
        Ok(heads.collect())
    }

    fn completions(&mut self, space: &Keyspace, _: (&str, &str)) -> Listed<(Name, Slot, Note)> {
        let environment = Environment::at(self.now);
        let records = self.records.iter().filter(|(key, _)| key.space == *space);
        let notes = records.flat_map(|(key, rows)| {
            let notes = rows.notes(&environment);
            notes.map(|(slot, note)| (key.name.clone(), slot.clone(), note.clone()))
        });
        Ok(notes.filter(|(_, slot, _)| *slot != Slot::Value).collect())
    }
}

impl Transaction for LockedTable<'_> {}
