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
mod opened;
mod path;
mod records;
mod rows;
mod schema;
mod thread;
mod time;
mod transaction;
mod watchers;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

#[doc(hidden)]
pub use self::boot::Machine;
use self::commands::{Change, Command, Read, Write};
#[cfg(feature = "doctor")]
pub(super) use self::diagnose::diagnose;
use self::link::Link;
use self::notify::{Notifier, Sockets};
use self::thread::Thread;
use crate::clock::{BootClock, Clock};
use crate::fork::Process;
use crate::store::api::{Capabilities, Page, Reply, StoreKind};
use crate::store::backend::{Backend, ListenChange};
use crate::store::hub::Hub;
use crate::store::options::OpenOptions;
use crate::store::query::RunningQuery;
use crate::store::rule_store::RuleStore;
use crate::store::work::Work;
use crate::{Error, ErrorKind, Result};

/// Lock records in a file, shared by the processes of one machine.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let directory = tempfile::tempdir().unwrap();
/// # let url = format!("sqlite:{}/locks.db", directory.path().display());
/// let store = leasehold::store::open(&url).await?;
/// assert_eq!(store.to_string(), url);
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
///
/// Dropping it does not block. Its thread finishes the commands before, then closes the file.
pub type SqliteStore = RuleStore<Sqlite>;

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
        self.backend().transactions.load(Ordering::Relaxed)
    }

    pub(super) async fn open(url: &str, options: &OpenOptions) -> Result<Self> {
        Self::start(path::parse(url)?, Machine::this()?, options).await
    }

    async fn start(path: PathBuf, machine: Machine, options: &OpenOptions) -> Result<Self> {
        let hub = Arc::default();
        let (queue, commands) = mpsc::channel(commands::QUEUE_MAX);
        let file = Sqlite {
            path,
            queue,
            response_timeout: options.response_timeout,
            transactions: Arc::default(),
            sockets: Arc::new(Sockets::new(&hub)?),
            process: Process::current(),
        };
        let opened = file.start(machine, &hub, commands, options)?;
        let opened = match tokio::time::timeout(options.connect_timeout, opened).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(_)) => Err(thread_ended()),
            Err(_) => Err(timed_out("opened", options.connect_timeout)),
        };
        opened.map_err(|error| error.at_store(&file))?;
        Ok(Self::with_hub(file, hub))
    }
}

/// A file, and the queue to the thread that has it open.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    queue: mpsc::Sender<Command>,
    response_timeout: Duration,
    transactions: Arc<AtomicU64>,
    sockets: Arc<Sockets>,
    process: Process,
}

impl Sqlite {
    /// Starts the thread. The receiver is for the result of opening the file.
    fn start(
        &self,
        machine: Machine,
        hub: &Arc<Hub>,
        commands: mpsc::Receiver<Command>,
        options: &OpenOptions,
    ) -> Result<oneshot::Receiver<Result<()>>> {
        let (opened, receiver) = oneshot::channel();
        let until = BootClock.now().after(wait_limit(options.connect_timeout));
        let wait_limit = wait_limit(options.response_timeout);
        let (path, hub) = (self.path.clone(), Arc::clone(hub));
        let notifier = Notifier::new(&path, Arc::clone(&self.sockets));
        let transactions = Arc::clone(&self.transactions);
        let started = std::thread::Builder::new()
            .name("leasehold-sqlite".into())
            .spawn(move || {
                let mut link = Link::new(path, machine, hub);
                let found = link.get(until).map(drop).map_err(Error::from);
                let is_open = found.is_ok();
                if opened.send(found).is_ok() && is_open {
                    Thread::new(link, notifier, commands, wait_limit, transactions).run();
                }
            });
        started.map_err(|error| {
            Error::new(ErrorKind::Store, "its thread cannot be started")
                .with_source(error)
                .at_store(self)
        })?;
        Ok(receiver)
    }

    /// Sends a command to the thread, and waits for its result.
    async fn call<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T> {
        // After a fork, the thread is in the parent.
        self.process.check()?;
        let (sender, receiver) = oneshot::channel();
        let command = command(sender);
        let called = async {
            self.queue.send(command).await.map_err(|_| thread_ended())?;
            receiver.await.map_err(|_| thread_ended())
        };
        let result = tokio::time::timeout(self.response_timeout, called).await;
        result.unwrap_or_else(|_| Err(timed_out("read or written", self.response_timeout)))
    }
}

impl Backend for Sqlite {
    fn capabilities(&self) -> Capabilities {
        Capabilities::notifying(StoreKind::Sqlite, self.sockets.is_reachable())
    }

    async fn transact(&self, work: Work) -> Result<Vec<Reply>> {
        let apply = |reply| Command::Write(Write::new(Change::Apply(work, Some(reply))));
        self.call(apply).await
    }

    async fn read(&self, query: RunningQuery) -> Result<Page> {
        if query.watched().is_some() {
            self.sockets.add_watcher();
        }
        let read = |reply| {
            Command::Read(Read {
                query,
                is_registered: false,
                reply,
            })
        };
        self.call(read).await?
    }

    fn listen(&self, change: ListenChange) {
        match change {
            ListenChange::Began(client) => self.sockets.add(client),
            ListenChange::Ended(client) => self.sockets.remove(client),
        }
    }
}

impl fmt::Display for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sqlite:{}", self.path.display())
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        // In a fork the sockets are those of the parent, and must stay.
        if self.process.is_current() {
            self.sockets.clear();
        }
    }
}

/// The URL of a store as its `Display`.
pub(super) fn redacted_url(url: &str) -> Result<String> {
    Ok(format!("sqlite:{}", path::parse(url)?.display()))
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
