//! The SQLite store: real locks between the processes of one machine, over one file.
//!
//! One thread per store owns the connection, so that the async runtime never waits for a disk. It commits
//! all commands that have arrived together.
//!
//! A file is for one machine: one kernel, with any number of processes and containers. It is refused on
//! network file systems and under a second name, and a second kernel that writes it is detected by the first.
//! After a restart of the machine no holder lives, so all locks are free. A kernel lock on the file shows
//! whether a process lives.
//!
//! If the file is deleted or replaced while it is used, its locks are lost, as with a server that lost its
//! data: holders learn it at their next request.
//!
//! A refused client joins a queue in the file, and is notified when it is granted the lock: if it is another
//! process, over a socket in the directory `FILE-wake`. The socket also shows whether its process lives, so
//! that killed waiters are skipped. Where no sockets can be created, waiters poll.

mod boot;
mod busy;
mod change;
mod commands;
#[cfg(feature = "doctor")]
mod diagnose;
mod error;
mod file;
mod gc;
mod link;
#[cfg_attr(not(target_os = "linux"), path = "liveness/none.rs")]
mod liveness;
mod log;
mod notify;
mod observers;
mod opened;
mod path;
mod read;
mod row;
mod rows;
mod schema;
mod time;
mod transaction;
mod worker;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once, Weak};
use std::thread;
use std::time::Duration;

use leasehold_core::ClientId;
use tokio::sync::{mpsc, oneshot};

#[doc(hidden)]
pub use self::boot::Machine;
use self::change::{Change, Sender, Write};
use self::commands::Command;
#[cfg(feature = "doctor")]
pub(super) use self::diagnose::diagnose;
use self::link::Link;
use self::notify::{Listeners, Notifier};
use self::read::Read;
use self::worker::Worker;
use crate::clock::{BootClock, Clock};
use crate::fork::Process;
use crate::store::api::private::Sealed;
use crate::store::api::{
    BoxFuture, Capabilities, Key, Keyspace, Listener, Listening, Page, Query, Reply, Request,
    Shard, Store, StoreKind,
};
use crate::store::observers::Observers;
use crate::store::options::OpenOptions;
use crate::{Error, ErrorKind, Result, random};

/// Lock records in a file, shared by the processes of one machine.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let directory = tempfile::tempdir().unwrap();
/// # let url = format!("sqlite:{}/locks.db", directory.path().display());
/// let store = leasehold::store::open(&url, &Default::default()).await?;
/// assert_eq!(store.to_string(), url);
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
///
/// Dropping it does not block. Its thread finishes the commands before, then closes the file.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    queue: mpsc::Sender<Command>,
    response_timeout: Duration,
    transactions: Arc<AtomicU64>,
    listeners: Arc<Listeners>,
    observers: Arc<Observers>,
    /// The client that is notified for the observers, and whether it is subscribed.
    observer: ClientId,
    observes: Once,
    process: Process,
}

impl SqliteStore {
    /// Opens a file, or creates it, on a given clock, for tests that control the time. All stores on the file
    /// must share that clock.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the file is closed. It may have been created.
    ///
    /// # Errors
    ///
    /// As [`open`](super::open()).
    pub async fn open_with_clock(path: impl AsRef<Path>, clock: Arc<dyn Clock>) -> Result<Self> {
        let path = path::absolute(path.as_ref())?;
        Self::start(path, Machine::with_clock(clock)?, &OpenOptions::default()).await
    }

    /// Opens a file, or creates it, on a given machine, for tests that restart it.
    #[doc(hidden)]
    pub async fn open_on(
        path: impl AsRef<Path>,
        machine: Machine,
        options: &OpenOptions,
    ) -> Result<Self> {
        Self::start(path::absolute(path.as_ref())?, machine, options).await
    }

    /// The number of write transactions committed so far.
    #[doc(hidden)]
    #[must_use]
    pub fn transactions(&self) -> u64 {
        self.transactions.load(Ordering::Relaxed)
    }

    pub(super) async fn open(url: &str, options: &OpenOptions) -> Result<Self> {
        Self::start(path::parse(url)?, Machine::this()?, options).await
    }

    async fn start(path: PathBuf, machine: Machine, options: &OpenOptions) -> Result<Self> {
        let (queue, commands) = mpsc::channel(commands::QUEUE_MAX);
        let store = Self {
            path,
            queue,
            response_timeout: options.response_timeout,
            transactions: Arc::default(),
            listeners: Arc::default(),
            observers: Arc::default(),
            observer: ClientId::from_random(random::bytes("the id of an observer")?),
            observes: Once::new(),
            process: Process::current(),
        };
        let (opened, receiver) = oneshot::channel();
        let path = store.path.clone();
        let until = BootClock.now().after(wait_limit(options.connect_timeout));
        let wait_limit = wait_limit(options.response_timeout);
        let transactions = Arc::clone(&store.transactions);
        let listeners = Arc::clone(&store.listeners);
        thread::Builder::new()
            .name("leasehold-sqlite".into())
            .spawn(move || {
                let notifier = Notifier::new(&path, Arc::clone(&listeners));
                match Link::open(path, machine, listeners, until) {
                    Ok(link) => {
                        if opened.send(Ok(())).is_ok() {
                            Worker::new(link, notifier, commands, wait_limit, transactions).run();
                        }
                    }
                    Err(fault) => {
                        let _ = opened.send(Err(Error::from(fault)));
                    }
                }
            })
            .map_err(|error| {
                Error::new(ErrorKind::Store, "its thread cannot be started")
                    .with_source(error)
                    .at_store(&store)
            })?;
        let opened = match tokio::time::timeout(options.connect_timeout, receiver).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(_)) => Err(thread_ended()),
            Err(_) => Err(timed_out("opened", options.connect_timeout)),
        };
        opened.map_err(|error| error.at_store(&store))?;
        Ok(store)
    }

    /// Sends a command to the thread, and waits for its result.
    async fn call<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Result<T> {
        // After a fork, the thread is in the parent.
        self.process.check().map_err(|error| error.at_store(self))?;
        let (sender, receiver) = oneshot::channel();
        let command = command(sender);
        let called = async {
            self.queue.send(command).await.map_err(|_| thread_ended())?;
            receiver.await.unwrap_or_else(|_| Err(thread_ended()))
        };
        let result = tokio::time::timeout(self.response_timeout, called).await;
        result
            .unwrap_or_else(|_| Err(timed_out("read or written", self.response_timeout)))
            .map_err(|error| error.at_store(self))
    }

    async fn write<T>(&self, change: impl FnOnce(Sender<T>) -> Change) -> Result<T> {
        let since = BootClock.now();
        let write = |reply| {
            let change = change(reply);
            Command::Write(Write { since, change })
        };
        self.call(write).await
    }

    async fn apply_batch(&self, batch: Vec<Request>) -> Vec<Reply> {
        let ops = batch.len();
        if ops == 0 {
            return Vec::new();
        }
        let apply = |reply| Change::Apply { batch, reply };
        match self.write(apply).await {
            Ok(replies) => {
                let named = |reply: Reply| reply.map_error(|error| error.at_store(self));
                replies.into_iter().map(named).collect()
            }
            Err(error) => vec![Reply::Unknown(error); ops],
        }
    }

    async fn read_page(&self, query: Query) -> Result<Page> {
        StoreKind::Sqlite.check_query(&query, self)?;
        match &query {
            Query::Name { key, watch, .. } => {
                let page = match watch {
                    true => self.read_watched(key, &query).await,
                    false => self.query(&query, None).await.map(|(page, _)| page),
                };
                page.map_err(|error| error.for_lock(&key.name))
            }
            _ => self.query(&query, None).await.map(|(page, _)| page),
        }
    }

    /// Reads, and returns whether the observer is notified of changes.
    async fn query(&self, query: &Query, observer: Option<ClientId>) -> Result<(Page, bool)> {
        let read = |reply| Command::Read(Read::new(query.clone(), observer, reply));
        let (page, is_registered) = self.call(read).await?;
        Ok((page, is_registered && !self.listeners.is_unreachable()))
    }

    /// Reads a name, and its next change if the file can push it.
    async fn read_watched(&self, key: &Key, query: &Query) -> Result<Page> {
        self.observes.call_once(|| {
            let observers = Arc::downgrade(&self.observers) as Weak<dyn Listener>;
            let refresh = Some(observers::REFRESH);
            self.listeners.add(self.observer, observers, refresh);
        });
        let changed = self.observers.add(key);
        let observer = Some(self.observer);
        let (mut page, mut is_notified) = self.query(query, observer).await?;
        if !is_notified && !self.listeners.is_unreachable() {
            let register = |reply| Change::RegisterObserver {
                key: key.clone(),
                client: self.observer,
                reply,
            };
            self.write(register).await?;
            (page, is_notified) = self.query(query, observer).await?;
        }
        page.changed = is_notified.then_some(changed);
        Ok(page)
    }
}

impl Sealed for SqliteStore {}

impl Store for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(StoreKind::Sqlite, self.listeners.wakeup_mode())
    }

    fn shard(&self, _key: &Key) -> Shard {
        Shard(0)
    }

    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        Box::pin(StoreKind::Sqlite.apply(batch, self, |batch| self.apply_batch(batch)))
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Result<Page>> {
        Box::pin(self.read_page(query))
    }

    fn listen(&self, _space: &Keyspace, client: ClientId, to: Weak<dyn Listener>) -> Listening {
        self.listeners.add(client, to, None);
        let listeners = Arc::downgrade(&self.listeners);
        Listening::new(move || {
            if let Some(listeners) = listeners.upgrade() {
                listeners.remove(client);
            }
        })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        // In a fork the sockets are those of the parent, and must stay.
        if self.process.is_current() {
            self.listeners.clear();
        }
    }
}

/// The URL of a store as its `Display`.
pub(super) fn redacted_url(url: &str) -> Result<String> {
    Ok(format!("sqlite:{}", path::parse(url)?.display()))
}

impl fmt::Display for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sqlite:{}", self.path.display())
    }
}

/// How long the thread waits for other processes: less than the timeout, so that its result, which is certain,
/// arrives before the caller gives up.
fn wait_limit(timeout: Duration) -> Duration {
    timeout / 4 * 3
}

fn thread_ended() -> Error {
    Error::new(ErrorKind::Store, "its thread has ended")
}

fn timed_out(what: &str, timeout: Duration) -> Error {
    Error::new(
        ErrorKind::Unreachable,
        format!("the file could not be {what} within {timeout:?}; the disk is too slow or stuck"),
    )
}
