//! The commands to the thread.

use std::collections::VecDeque;

use leasehold_core::{AnnotationKind, ClientId, Instant};
use tokio::sync::mpsc;

use super::annotations::{Completion, Position};
use super::change::{Sender, Write};
use crate::Result;
use crate::store::api::{ClientInfo, Detail, Entry, Key, Keyspace, LatchObservation, Observation};

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

/// A read, and the channel for its result.
#[derive(Debug)]
pub(super) enum Read {
    Inspect {
        key: Key,
        detail: Detail,
        reply: Sender<Option<Entry>>,
    },
    /// The locks that are held, by name.
    List(Listing<Entry, String>),
    Completions(Listing<Completion, Position>),
    Client {
        client: ClientId,
        reply: Sender<Option<ClientInfo>>,
    },
    /// Also returns whether the client is registered as an observer.
    Observe {
        key: Key,
        kind: AnnotationKind,
        client: ClientId,
        reply: Sender<(Observation, bool)>,
    },
    /// The same for a latch.
    ObserveLatch {
        key: Key,
        client: ClientId,
        reply: Sender<(LatchObservation, bool)>,
    },
}

/// A list that is read page by page.
#[derive(Debug)]
pub(super) struct Listing<T, P> {
    pub(super) space: Keyspace,
    /// The position after which to continue.
    pub(super) after: P,
    /// The entries before it.
    pub(super) found: Vec<T>,
    pub(super) reply: Sender<Vec<T>>,
}

impl<T, P> Listing<T, P> {
    /// Adds a page: its entries, and the position of the next one. Returns the listing if it continues.
    pub(super) fn continued(mut self, page: Result<(Vec<T>, Option<P>)>) -> Option<Self> {
        let (entries, next) = match page {
            Ok(page) => page,
            Err(error) => {
                let _ = self.reply.send(Err(error));
                return None;
            }
        };
        self.found.extend(entries);
        let Some(after) = next else {
            let _ = self.reply.send(Ok(self.found));
            return None;
        };
        Some(Self { after, ..self })
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
    pub(super) reads: VecDeque<Read>,
}

impl Commands {
    /// The receiver of a queue.
    pub(super) fn new(queue: mpsc::Receiver<Command>) -> Self {
        Self {
            queue,
            ops: 0,
            writes: Vec::new(),
            reads: VecDeque::new(),
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
        let (old, young) = self
            .take_writes()
            .into_iter()
            .partition(|write| write.since <= instant);
        self.writes = young;
        self.ops = self.writes.iter().map(Write::ops).sum();
        old
    }

    fn sort(&mut self, command: Command) {
        match command {
            Command::Write(write) => {
                self.ops += write.ops();
                self.writes.push(write);
            }
            Command::Read(read) => self.reads.push_back(read),
        }
    }
}
