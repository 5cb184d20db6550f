//! The commands to the thread.

use leasehold_core::Instant;
use tokio::sync::{mpsc, oneshot};

use crate::Result;
use crate::clock::{BootClock, Clock as _};
use crate::store::api::{Page, Reply};
use crate::store::query::RunningQuery;
use crate::store::work::Work;

/// The capacity of the queue to the thread: far more commands than a client has in flight.
pub(super) const QUEUE_MAX: usize = 1_024;

/// The number of operations per transaction, so that the first does not wait long for the last. A larger
/// batch is not split.
const OPS_MAX: usize = 1_024;

/// One command.
#[derive(Debug)]
pub(super) enum Command {
    /// Changes the file.
    Write(Write),
    /// Reads it.
    Read(Read),
}

/// A change of the file, and when it was sent.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) since: Instant,
    pub(super) change: Change,
}

/// A change of the file.
#[derive(Debug)]
pub(super) enum Change {
    /// Applies requests. The caller of work that is left of others is gone.
    Apply(Work, Option<oneshot::Sender<Vec<Reply>>>),
    /// Registers the observers of this store for a name before it is read.
    Watch(Read),
}

/// A query, and the channel for its result.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) query: RunningQuery,
    /// Whether it was registered, or need not be.
    pub(super) is_registered: bool,
    pub(super) reply: oneshot::Sender<Result<Page>>,
}

impl Write {
    pub(super) fn new(change: Change) -> Self {
        let since = BootClock.now();
        Self { since, change }
    }

    /// The number of its operations.
    fn ops(&self) -> usize {
        match &self.change {
            Change::Apply(work, _) => work.len(),
            Change::Watch(_) => 1,
        }
    }
}

/// The received commands that are not done yet, in order.
#[derive(Debug)]
pub(super) struct Commands {
    queue: mpsc::Receiver<Command>,
    /// The writes of the next transaction.
    pub(super) writes: Vec<Write>,
    /// The number of their operations.
    pub(super) ops: usize,
    pub(super) reads: Vec<Read>,
}

impl Commands {
    /// The receiver of a queue.
    pub(super) fn new(queue: mpsc::Receiver<Command>) -> Self {
        Self {
            queue,
            ops: 0,
            writes: Vec::new(),
            reads: Vec::new(),
        }
    }

    /// Waits for a command. `false`: all are done and the queue is closed.
    pub(super) fn wait(&mut self) -> bool {
        if self.writes.is_empty() && self.reads.is_empty() {
            match self.queue.blocking_recv() {
                Some(command) => self.sort(command),
                None => return false,
            }
        }
        true
    }

    /// Receives the commands that have arrived, as far as they fit into one transaction.
    pub(super) fn take_ready(&mut self) {
        while self.ops + self.reads.len() < OPS_MAX {
            match self.queue.try_recv() {
                Ok(command) => self.sort(command),
                Err(_) => return,
            }
        }
    }

    /// Removes all writes.
    pub(super) fn take_writes(&mut self) -> Vec<Write> {
        self.ops = 0;
        std::mem::take(&mut self.writes)
    }

    /// Removes the writes that have waited since `instant` or longer.
    pub(super) fn take_writes_since(&mut self, instant: Instant) -> Vec<Write> {
        let writes = self.take_writes().into_iter();
        let (old, young) = writes.partition(|write| write.since <= instant);
        self.writes = young;
        self.ops = self.writes.iter().map(Write::ops).sum();
        old
    }

    /// Adds a write to the next transaction.
    pub(super) fn add(&mut self, write: Write) {
        self.ops += write.ops();
        self.writes.push(write);
    }

    fn sort(&mut self, command: Command) {
        match command {
            Command::Write(write) => self.add(write),
            Command::Read(read) => self.reads.push(read),
        }
    }
}
