//! Renews the leases of this process in time, and tells their holders when that fails.
//!
//! One task sleeps until the first lease is due, asks every due lease what it wants, and sends the
//! renewals in batches, each in a task of its own, by the limiter of their shard. It waits for no answer:
//! a slow shard delays no other. What an answer means is decided by [`leasehold_core::Lease`]; what a
//! silence means, too.
//!
//! A panic, of a store or of ours, fails the renewals it hits, which are tried again, and the task goes
//! on. If it did not, each lease would still be lost in time, by its own clock.

mod batch;
mod shard_limiter;

use std::collections::HashMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use leasehold_core::{Action, Instant, Schedule};
use tokio::sync::Notify;

use self::batch::Batch;
use self::shard_limiter::ShardLimiters;
use super::active_lease::ActiveLease;
use super::clock::Clock;
use super::sync::{JoinHandle, Mutex, MutexGuard, Runtime, lock, report};
use super::watchdog::WatchdogClient;
use super::{Route, concerns};
use crate::store::{EventScope, Store};

/// How many leases are looked at before others get a word in.
const LOOK_MAX: usize = 1_024;

/// The pause after a panic.
const RESTART: Duration = Duration::from_millis(100);

/// The renewing task. It stops when this is dropped.
#[derive(Debug)]
pub(crate) struct Renewer {
    shared: Arc<Shared>,
    /// Always there, but in a fork of the process.
    task: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    runtime: Runtime,
    /// Told of what is looked after.
    watch: WatchdogClient,
    limiters: ShardLimiters,
    table: Mutex<Table>,
    /// What was interrupted since the task looked last.
    interrupted: Mutex<Vec<EventScope>>,
    earlier: Notify,
}

#[derive(Debug, Default)]
struct Table {
    schedule: Schedule<Arc<ActiveLease>>,
    /// When the task will look next. Stays where it is when leases go, so that taking and
    /// releasing a lock over and over does not wake the task each time.
    armed: Option<Instant>,
}

impl Renewer {
    pub(crate) fn start(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        runtime: &Runtime,
        watch: WatchdogClient,
    ) -> Self {
        let shared = Arc::new(Shared {
            store,
            clock,
            runtime: runtime.clone(),
            watch,
            limiters: ShardLimiters::default(),
            table: Mutex::default(),
            interrupted: Mutex::default(),
            earlier: Notify::new(),
        });
        let task = Some(runtime.spawn(Arc::clone(&shared).run()));
        Self { shared, task }
    }

    /// Looks after a lease from now on.
    pub(crate) fn insert(&self, held: &Arc<ActiveLease>) {
        let now = self.shared.clock.now();
        let mut table = self.shared.table();
        table.remove(held);
        self.shared.look_later(table, Arc::clone(held), now);
    }

    /// Looks at a lease anew because one of its holds came or went, or because it was lost.
    pub(crate) fn revisit(&self, held: &ActiveLease) {
        self.shared.revisit(held, self.shared.clock.now());
    }

    /// Asks the store soon whether it still knows a lease.
    pub(crate) fn check(&self, held: &ActiveLease) {
        let now = self.shared.clock.now();
        held.check(now);
        self.shared.revisit(held, now);
    }

    /// Asks the store whether it still knows these leases: the connection was interrupted.
    pub(crate) fn interrupted(&self, reach: EventScope) {
        let mut interrupted = lock(&self.shared.interrupted);
        if !interrupted.contains(&reach) {
            interrupted.push(reach);
        }
        drop(interrupted);
        self.shared.earlier.notify_one();
    }

    /// Forgets a lease: no renewal of it is begun any more.
    pub(crate) fn remove(&self, held: &ActiveLease) {
        self.shared.table().remove(held);
        self.shared.watch.unmark(held);
    }

    /// Does not end its task when it is dropped, nor what that uses.
    pub(super) fn keep(&mut self) {
        std::mem::forget((self.task.take(), Arc::clone(&self.shared)));
    }

    /// The leases it looks after.
    pub(crate) fn leases(&self) -> Vec<Arc<ActiveLease>> {
        self.shared.table().schedule.entries().cloned().collect()
    }
}

impl Drop for Renewer {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Table {
    fn insert(&mut self, held: Arc<ActiveLease>, due: Instant) {
        // 0 says that it is not scheduled.
        let due = due.max(Instant::from_nanos(1));
        held.scheduled.store(due.as_nanos(), Ordering::Relaxed);
        self.schedule.insert(due, held.id.number, held);
    }

    /// Takes a lease out, if it is in.
    fn remove(&mut self, held: &ActiveLease) -> Option<Arc<ActiveLease>> {
        match held.scheduled.swap(0, Ordering::Relaxed) {
            0 => None,
            due => self
                .schedule
                .remove(Instant::from_nanos(due), held.id.number),
        }
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    /// Looks after the leases, and goes on after a panic.
    async fn run(self: Arc<Self>) {
        loop {
            {
                let mut work = pin!(self.look_after());
                let panicked = poll_fn(|context| {
                    let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
                    match polled {
                        Ok(Poll::Pending) => Poll::Pending,
                        Ok(Poll::Ready(never)) => match never {},
                        Err(panic) => Poll::Ready(panic),
                    }
                });
                drop(panicked.await);
            }
            report(|| {
                metrics::counter!("leasehold_renewer_restarts_total").increment(1);
                tracing::error!("the renewer panicked; it goes on");
            });
            tokio::time::sleep(RESTART).await;
        }
    }

    async fn look_after(self: &Arc<Self>) -> Never {
        loop {
            let interrupted = std::mem::take(&mut *lock(&self.interrupted));
            if !interrupted.is_empty() {
                self.doubt(&interrupted).await;
            }
            while self.poll_due() {
                tokio::task::yield_now().await;
            }
            let next = {
                let mut table = self.table();
                table.armed = table.schedule.next();
                table.armed
            };
            match next {
                Some(next) => tokio::select! {
                    () = self.clock.sleep_until(next) => {}
                    () = self.earlier.notified() => {}
                },
                None => self.earlier.notified().await,
            }
        }
    }

    /// Tells due leases the time, and sends those on their way that want to be renewed. Answers
    /// whether there may be more.
    fn poll_due(self: &Arc<Self>) -> bool {
        let mut batches = HashMap::<Route, Batch>::new();
        let mut news = Vec::new();
        let mut looks = 0;
        let leases = {
            let mut table = self.table();
            let now = self.clock.now();
            while looks < LOOK_MAX
                && let Some(held) = table.schedule.pop_due(now)
            {
                looks += 1;
                let due = Instant::from_nanos(held.scheduled.swap(0, Ordering::Relaxed));
                let (action, next, told) = held.poll(due, now);
                news.extend(told.map(|kind| (Arc::clone(&held), kind)));
                if let Action::Renew(_) = action {
                    let route = Route::of(&self.store, &held.key, held.durability());
                    let batch = batches.entry(route).or_insert_with(|| Batch::new(self));
                    batch.push(Arc::clone(&held), due);
                }
                match next {
                    Some(next) => table.insert(held, next),
                    None => self.watch.unmark(&held),
                }
            }
            table.schedule.len()
        };
        for (route, batch) in batches {
            self.send(route, batch);
        }
        for (held, kind) in news {
            held.report(kind);
        }
        report(|| metrics::gauge!("leasehold_leases").set(leases as f64));
        looks == LOOK_MAX
    }

    fn send(self: &Arc<Self>, route: Route, mut batch: Batch) {
        let limiter = self.limiters.of(route);
        let size = limiter.batch_max(batch.len());
        while batch.len() > 0 {
            let part = batch.split_off_front(size);
            self.runtime.spawn(part.renew(Arc::clone(&limiter)));
        }
    }

    /// Asks the store about every lease that was interrupted.
    async fn doubt(&self, interrupted: &[EventScope]) {
        // ReleaseOrder the interruption: an answer to what was sent before it proves nothing.
        let now = self.clock.now();
        let concerned = |held: &Arc<ActiveLease>| {
            let reaches = |reach: &EventScope| concerns(&self.store, reach, &held.key);
            interrupted.iter().any(reaches)
        };
        let leases: Vec<_> = self.table().schedule.entries().cloned().collect();
        let leases: Vec<_> = leases.into_iter().filter(concerned).collect();
        for part in leases.chunks(LOOK_MAX) {
            for held in part {
                held.interrupted(now);
                self.revisit(held, now);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Looks at a lease when it now wants it, or never again, if it is looked after still. Calls nothing
    /// that is not ours: no panic takes a lease out of the table.
    fn revisit(&self, held: &ActiveLease, now: Instant) {
        let mut table = self.table();
        if let Some(held) = table.remove(held) {
            self.look_later(table, held, now);
        }
    }

    /// Puts a lease into the table. It is asked for its instant while the table is locked: of two that
    /// change it, the one that comes last here knows what the other did.
    fn look_later(&self, mut table: MutexGuard<'_, Table>, held: Arc<ActiveLease>, now: Instant) {
        let (next, news) = held.next_event(now);
        if let Some(due) = next {
            table.insert(Arc::clone(&held), due);
            self.wake_for(&mut table, due);
        }
        drop(table);
        match next {
            Some(_) => self.watch.mark(&held, now),
            None => self.watch.unmark(&held),
        }
        if let Some(kind) = news {
            held.report(kind);
        }
    }

    fn wake_for(&self, table: &mut Table, due: Instant) {
        if table.armed.is_none_or(|armed| due < armed) {
            table.armed = Some(due);
            self.earlier.notify_one();
        }
    }
}

/// What never comes.
enum Never {}

#[cfg(all(test, feature = "__shuttle"))]
mod model;
