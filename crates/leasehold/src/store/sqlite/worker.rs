//! The thread that owns the connection.
//!
//! It takes all that has come in meanwhile, commits it together and answers each: one sync of the
//! disk for many. Reads see what was committed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{Instant, StoreTime};
use rusqlite::Connection;
use tokio::sync::mpsc;

use super::busy::{self, Turn};
use super::commands::{Command, Commands, Read};
use super::error::Fault;
use super::file::File;
use super::gc::GarbageCollector;
use super::link::Link;
use super::log::LogMonitor;
use super::notify::{Notifier, Outbox};
use super::transaction::{self, Failed};
use super::{records, time};
use crate::clock::{BootClock, Clock as _};
use crate::store::api::Reply;
use crate::{Error, Result};

/// The state of the thread.
#[derive(Debug)]
pub(super) struct Worker {
    link: Link,
    notifier: Notifier,
    inbox: Commands,
    sweeper: GarbageCollector,
    log: LogMonitor,
    /// How long a question waits for other processes.
    patience: Duration,
    transactions: Arc<AtomicU64>,
}

impl Worker {
    /// A worker that answers what comes through `queue` and counts its transactions.
    pub(super) fn new(
        link: Link,
        notifier: Notifier,
        queue: mpsc::Receiver<Command>,
        patience: Duration,
        transactions: Arc<AtomicU64>,
    ) -> Self {
        Self {
            link,
            notifier,
            inbox: Commands::new(queue),
            sweeper: GarbageCollector::new(),
            log: LogMonitor::default(),
            patience,
            transactions,
        }
    }

    /// Answers questions until the store was dropped and all are answered.
    pub(super) fn run(mut self) {
        let mut turn = Turn::start();
        while turn.rest(|| self.inbox.wait()) {
            self.inbox.take_ready();
            self.write();
            self.read();
            turn.give_way();
        }
    }

    fn write(&mut self) {
        let Some(first) = self.inbox.writes().first() else {
            return;
        };
        let until = first.since.after(self.patience);
        let Failed {
            fault,
            undetermined,
        } = match self.commit(until) {
            Ok(answers) => {
                let writes = self.inbox.take_writes();
                for (write, replies) in writes.into_iter().zip(answers) {
                    write.finish(replies);
                }
                return;
            }
            Err(failed) => failed,
        };
        let failed = if fault.is_busy() {
            // Those that came later may still wait for the other process.
            let since = BootClock.now().before(self.patience);
            self.inbox.take_writes_since(since)
        } else {
            self.inbox.take_writes()
        };
        let lost = fault.lost();
        let error = self.look_into(fault);
        for write in failed {
            write.fail(&error, lost.as_ref(), undetermined);
        }
    }

    /// Applies all writes of the inbox in one transaction, and tells whom it concerns.
    fn commit(&mut self, until: Instant) -> Result<Vec<Vec<Reply>>, Failed> {
        let file = self.link.get(until).map_err(Failed::certain)?;
        let mut outbox = Outbox::new(&mut self.notifier, &file.path);
        let answers = transaction::run(&file.db, until, |db| {
            // More may have come while it waited for others.
            self.inbox.take_ready();
            let now = time::tick(db, &file.machine)?;
            let mut answers = Vec::with_capacity(self.inbox.writes().len());
            for write in self.inbox.writes() {
                answers.push(write.perform(db, now, &mut outbox)?);
            }
            let ops = u32::try_from(self.inbox.ops()).unwrap_or(u32::MAX);
            self.sweeper.wrote(ops, db, now)?;
            outbox.prepare();
            Ok(answers)
        })?;
        outbox.send();
        self.log.committed(file);
        self.transactions.fetch_add(1, Ordering::Relaxed);
        Ok(answers)
    }

    fn read(&mut self) {
        for read in self.inbox.take_reads() {
            match read {
                Read::Inspect { key, reply } => {
                    let entry = self.look(|db, now| records::inspect(db, &key, now));
                    let _ = reply.send(entry);
                }
                Read::List {
                    space,
                    after,
                    mut found,
                    reply,
                } => match self.look(|db, now| records::list(db, &space, &after, now)) {
                    Ok(page) => {
                        found.extend(page.entries);
                        let Some(after) = page.next else {
                            let _ = reply.send(Ok(found));
                            continue;
                        };
                        self.inbox.put_back(Read::List {
                            space,
                            after,
                            found,
                            reply,
                        });
                    }
                    Err(error) => {
                        let _ = reply.send(Err(error));
                    }
                },
            }
        }
    }

    /// Looks at what is committed. Only a process that opens or closes the file can be in the way.
    fn look<T>(&mut self, see: impl Fn(&Connection, StoreTime) -> Result<T, Fault>) -> Result<T> {
        let until = BootClock.now().after(self.patience);
        let seen = self.link.get(until).and_then(|File { db, machine, .. }| {
            busy::retry(until, || see(db, time::now(db, machine)?))
        });
        seen.map_err(|fault| self.look_into(fault))
    }

    /// Tells what a fault means to the one who asked, and makes the connection anew where that may
    /// help the next one.
    fn look_into(&mut self, fault: Fault) -> Error {
        self.link.look_into(&fault);
        fault.into()
    }
}
