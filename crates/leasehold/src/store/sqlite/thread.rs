//! The thread that owns the connection.
//!
//! It takes all commands that have arrived, commits their changes together and replies to each: one sync of
//! the disk for many. Reads see committed data.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{ClientId, Instant};
use tokio::sync::mpsc;

use super::busy::{self, Turn};
use super::commands::{Change, Command, Commands, Read, Write};
use super::error::Fault;
use super::file::File;
use super::gc::GarbageCollector;
use super::link::Link;
use super::log::LogMonitor;
use super::notify::{Notifier, Outbox};
use super::records::FileRecords;
use super::transaction::{self, Failed};
use super::{time, watchers};
use crate::Error;
use crate::clock::{BootClock, Clock as _};
use crate::store::work::Failure;

/// The state of the thread.
#[derive(Debug)]
pub(super) struct Thread {
    link: Link,
    notifier: Notifier,
    commands: Commands,
    gc: GarbageCollector,
    log: LogMonitor,
    /// How long a command waits for other processes.
    wait_limit: Duration,
    transactions: Arc<AtomicU64>,
}

/// What a step of a read has left to do.
enum Rest {
    Nothing,
    /// It goes on after the other reads.
    Step,
    /// Its observers are registered first.
    Registration,
}

impl Thread {
    /// A thread that executes the commands of `queue` and counts its transactions.
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
        match self.commit(until) {
            Ok(()) => {
                for write in self.commands.take_writes() {
                    self.finish(write);
                }
            }
            Err(failed) => self.fail(failed),
        }
    }

    /// Applies all writes in one transaction, and sends the notifications to other processes.
    fn commit(&mut self, until: Instant) -> Result<(), Failed> {
        let watcher = self.notifier.sockets.watcher;
        let file = self.link.get(until).map_err(Failed::certain)?;
        self.notifier.update(&file.path);
        let outbox = Outbox::new(&mut self.notifier);
        let outbox = transaction::run(&file.db, until, |db| {
            // More may have arrived during the wait for other processes.
            self.commands.take_ready();
            let now = time::tick(db, &file.machine)?;
            let mut records = FileRecords { db, now, outbox };
            for write in &mut self.commands.writes {
                perform(write, &mut records, watcher)?;
            }
            self.gc.count_writes(self.commands.ops, db, now)?;
            records.outbox.prepare();
            Ok(records.outbox)
        })?;
        outbox.send();
        self.log.committed(file);
        self.transactions.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Replies to a write that is committed. A future that waits for it may have been dropped.
    fn finish(&mut self, write: Write) {
        match write.change {
            Change::Apply(work, reply) => {
                let (replies, rest) = work.finish();
                let _ = reply.map(|reply| reply.send(replies));
                if let Some(rest) = rest {
                    self.commands.add(Write::new(Change::Apply(rest, None)));
                }
            }
            Change::Watch(mut read) => {
                read.is_registered = true;
                self.commands.reads.push(read);
            }
        }
    }

    /// Replies to the writes of a transaction that failed.
    fn fail(&mut self, failed: Failed) {
        let writes = match failed.fault.is_busy() {
            // Later ones may still wait for the other process.
            true => {
                let since = BootClock.now().before(self.wait_limit);
                self.commands.take_writes_since(since)
            }
            false => self.commands.take_writes(),
        };
        let failure = Failure {
            is_certain: !failed.undetermined,
            lost: failed.fault.lost(),
            error: self.recover(failed.fault),
        };
        for write in writes {
            match write.change {
                Change::Apply(work, reply) => {
                    let replies = work.fail(&failure);
                    let _ = reply.map(|reply| reply.send(replies));
                }
                Change::Watch(read) => {
                    let _ = read.reply.send(Err(failure.error.clone()));
                }
            }
        }
    }

    fn read(&mut self) {
        for mut read in std::mem::take(&mut self.commands.reads) {
            match self.step(&mut read) {
                Ok(Rest::Step) => self.commands.reads.push(read),
                Ok(Rest::Registration) => {
                    self.commands.add(Write::new(Change::Watch(read)));
                }
                Ok(Rest::Nothing) => {
                    let _ = read.reply.send(read.query.finish());
                }
                Err(error) => {
                    let _ = read.reply.send(Err(error));
                }
            }
        }
    }

    /// Reads committed data. It waits only for a process that opens or closes the file.
    fn step(&mut self, read: &mut Read) -> Result<Rest, Error> {
        let until = BootClock.now().after(self.wait_limit);
        let notifier = &mut self.notifier;
        let result = self
            .link
            .get(until)
            .and_then(|file| busy::retry(until, || step(read, file, notifier)));
        result.map_err(|fault| self.recover(fault))
    }

    /// Makes the error of a fault, and reopens the connection where that may help the next command.
    fn recover(&mut self, fault: Fault) -> Error {
        self.link.recover(&fault);
        fault.into()
    }
}

/// Makes a change inside a transaction.
fn perform(
    write: &mut Write,
    records: &mut FileRecords<'_, '_>,
    watcher: ClientId,
) -> Result<(), Fault> {
    match &mut write.change {
        Change::Apply(work, _) => work.run(records),
        Change::Watch(read) => {
            records.outbox.add_waiter();
            let watched = read.query.watched();
            watched.map_or(Ok(()), |key| {
                watchers::register(records.db, key, watcher, records.now)
            })
        }
    }
}

fn step(read: &mut Read, file: &File, notifier: &mut Notifier) -> Result<Rest, Fault> {
    // Before the state that is read: a lease that is renewed meanwhile has not ended.
    let now = time::now(&file.db, &file.machine)?;
    // All parts are read in the same state of the file.
    let db = &*file.db.unchecked_transaction()?;
    if let Some(key) = read.query.watched().filter(|_| !read.is_registered)
        && notifier.sockets.is_reachable()
        && !watchers::is_registered(db, key, notifier.sockets.watcher, now)?
    {
        return Ok(Rest::Registration);
    }
    // A query notifies nobody.
    let outbox = Outbox::new(notifier);
    let mut records = FileRecords { db, now, outbox };
    Ok(match read.query.step(&mut records)? {
        true => Rest::Step,
        false => Rest::Nothing,
    })
}
