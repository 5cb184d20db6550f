//! The thread that owns the connection.
//!
//! It takes all commands that have arrived, commits their changes together and replies to each: one sync of
//! the disk for many. Reads see committed data.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{Instant, StoreTime};
use rusqlite::Connection;
use tokio::sync::mpsc;

use super::busy::{self, Turn};
use super::change::Changed;
use super::commands::{Command, Commands};
use super::error::Fault;
use super::file::File;
use super::gc::GarbageCollector;
use super::link::Link;
use super::log::LogMonitor;
use super::notify::{Notifier, Outbox};
use super::time;
use super::transaction::{self, Failed};
use crate::clock::{BootClock, Clock as _};
use crate::{Error, Result};

/// The state of the thread.
#[derive(Debug)]
pub(super) struct Worker {
    link: Link,
    notifier: Notifier,
    commands: Commands,
    gc: GarbageCollector,
    log: LogMonitor,
    /// How long a command waits for other processes.
    wait_limit: Duration,
    transactions: Arc<AtomicU64>,
}

impl Worker {
    /// A worker that executes the commands of `queue` and counts its transactions.
    pub(super) fn new(
        link: Link,
        notifier: Notifier,
        queue: mpsc::Receiver<Command>,
        wait_limit: Duration,
        transactions: Arc<AtomicU64>,
    ) -> Self {
        Self {
            link,
            notifier,
            commands: Commands::new(queue),
            gc: GarbageCollector::new(),
            log: LogMonitor::default(),
            wait_limit,
            transactions,
        }
    }

    /// Executes commands until the store was dropped and all are done.
    pub(super) fn run(mut self) {
        let mut turn = Turn::start();
        while turn.rest(|| self.commands.wait()) {
            self.commands.take_ready();
            self.write();
            self.read();
            turn.yield_if_long();
        }
    }

    fn write(&mut self) {
        let Some(first) = self.commands.writes.first() else {
            return;
        };
        let until = first.since.after(self.wait_limit);
        let Failed {
            fault,
            undetermined,
        } = match self.commit(until) {
            Ok(results) => {
                let writes = self.commands.take_writes();
                for (write, changed) in writes.into_iter().zip(results) {
                    if let Some(rest) = write.finish(changed) {
                        self.commands.add(rest);
                    }
                }
                return;
            }
            Err(failed) => failed,
        };
        let failed = if fault.is_busy() {
            // Later ones may still wait for the other process.
            let since = BootClock.now().before(self.wait_limit);
            self.commands.take_writes_since(since)
        } else {
            self.commands.take_writes()
        };
        let lost = fault.lost();
        let error = self.recover(fault);
        for write in failed {
            write.fail(&error, lost.as_ref(), undetermined);
        }
    }

    /// Applies all writes in one transaction, and sends the notifications.
    fn commit(&mut self, until: Instant) -> Result<Vec<Changed>, Failed> {
        let file = self.link.get(until).map_err(Failed::certain)?;
        let mut outbox = Outbox::new(&mut self.notifier, &file.path);
        let results = transaction::run(&file.db, until, |db| {
            // More may have arrived during the wait for other processes.
            self.commands.take_ready();
            let now = time::tick(db, &file.machine)?;
            let mut results = Vec::with_capacity(self.commands.writes.len());
            for write in &self.commands.writes {
                results.push(write.perform(db, now, &mut outbox)?);
            }
            let ops = u32::try_from(self.commands.ops).unwrap_or(u32::MAX);
            self.gc.count_writes(ops, db, now)?;
            outbox.prepare();
            Ok(results)
        })?;
        outbox.send();
        self.log.committed(file);
        self.transactions.fetch_add(1, Ordering::Relaxed);
        Ok(results)
    }

    fn read(&mut self) {
        for read in std::mem::take(&mut self.commands.reads) {
            let step = self.query(|db, now| read.step(db, now));
            // A list that continues does so after the others.
            self.commands.reads.extend(read.continued(step));
        }
    }

    /// Reads committed data. It waits only for a process that opens or closes the file.
    fn query<T>(
        &mut self,
        query: impl Fn(&Connection, StoreTime) -> Result<T, Fault>,
    ) -> Result<T> {
        let until = BootClock.now().after(self.wait_limit);
        let result = self.link.get(until).and_then(|File { db, machine, .. }| {
            busy::retry(until, || query(db, time::now(db, machine)?))
        });
        result.map_err(|fault| self.recover(fault))
    }

    /// Makes the error of a fault, and reopens the connection where that may help the next command.
    fn recover(&mut self, fault: Fault) -> Error {
        self.link.recover(&fault);
        fault.into()
    }
}
