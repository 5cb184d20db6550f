//! What is asked of the thread.

use std::collections::VecDeque;

use leasehold_core::Instant;
use tokio::sync::{mpsc, oneshot};

use super::change::Write;
use crate::Result;
use crate::store::api::{Entry, Key, Keyspace};

/// How many questions may wait for the thread; whoever comes then waits outside. Far more than a
/// client has under way.
pub(super) const QUEUE_MAX: usize = 1_024;

/// At most this many operations are taken in at a time, so that the first of them does not wait
/// long for the last. A larger batch is not torn apart.
const OPS_MAX: usize = 1_024;

/// One question.
#[derive(Debug)]
pub(super) enum Command {
    /// Changes the file.
    Write(Write),
    /// Looks at it.
    Read(Read),
}

/// What to look at, and whom to tell.
#[derive(Debug)]
pub(super) enum Read {
    Inspect {
        key: Key,
        reply: oneshot::Sender<Result<Option<Entry>>>,
    },
    List {
        space: Keyspace,
        /// The name after which to go on.
        after: String,
        /// What was found before it.
        found: Vec<Entry>,
        reply: oneshot::Sender<Result<Vec<Entry>>>,
    },
}

/// The questions that came in and are not answered yet, in the order in which they came.
#[derive(Debug)]
pub(super) struct Commands {
    queue: mpsc::Receiver<Command>,
    ops: usize,
    writes: Vec<Write>,
    reads: VecDeque<Read>,
}

impl Commands {
    /// An empty inbox at the end of a queue.
    pub(super) fn new(queue: mpsc::Receiver<Command>) -> Self {
        Self {
            queue,
            ops: 0,
            writes: Vec::new(),
            reads: VecDeque::new(),
        }
    }

    /// Waits until something has come. `false`: all is answered and nothing can come any more.
    pub(super) fn wait(&mut self) -> bool {
        if self.is_empty() {
            match self.queue.blocking_recv() {
                Some(job) => self.sort(job),
                None => return false,
            }
        }
        true
    }

    /// Takes in all that has come, as far as it fits into one transaction.
    pub(super) fn take_ready(&mut self) {
        while self.ops + self.reads.len() < OPS_MAX {
            match self.queue.try_recv() {
                Ok(job) => self.sort(job),
                Err(_) => return,
            }
        }
    }

    /// The writes that are to go into the next transaction.
    pub(super) fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// How many operations they are.
    pub(super) fn ops(&self) -> usize {
        self.ops
    }

    /// Hands out all writes.
    pub(super) fn take_writes(&mut self) -> Vec<Write> {
        self.ops = 0;
        std::mem::take(&mut self.writes)
    }

    /// Hands out the writes that have waited since `instant` or longer.
    pub(super) fn take_writes_since(&mut self, instant: Instant) -> Vec<Write> {
        let (old, young) = self
            .take_writes()
            .into_iter()
            .partition(|write| write.since <= instant);
        self.writes = young;
        self.ops = self.writes.iter().map(Write::ops).sum();
        old
    }

    /// Hands out all reads.
    pub(super) fn take_reads(&mut self) -> VecDeque<Read> {
        std::mem::take(&mut self.reads)
    }

    /// Takes a read in again, to go on after others had their turn.
    pub(super) fn put_back(&mut self, read: Read) {
        self.reads.push_back(read);
    }

    fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.reads.is_empty()
    }

    fn sort(&mut self, job: Command) {
        match job {
            Command::Write(write) => {
                self.ops += write.ops();
                self.writes.push(write);
            }
            Command::Read(read) => self.reads.push_back(read),
        }
    }
}
