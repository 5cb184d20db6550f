//! Renews the leases of this process in time, and notifies their holders when that fails.
//!
//! One task sleeps until the first lease is due, polls every due lease, and sends the renewals in batches,
//! each in a task of its own that waits for the limiter of its shard. The task does not wait for replies: a
//! slow shard does not delay another. What a reply or a missing reply means for a lease is decided by
//! [`leasehold_core::Lease`].
//!
//! A panic, of a store or of this code, fails the renewals that it hits, which are retried, and the task goes
//! on. Without the task, each lease would still be lost in time, by the clock.

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
use super::context::{Context, Route};
use super::sync::{JoinHandle, Mutex, MutexGuard, lock, report};
use super::watchdog::WatchdogClient;
use crate::store::EventScope;

/// How many leases are processed before the task yields to others.
const LEASES_PER_PASS: usize = 1_024;

/// The interval between a panic and the restart of the task.
const RESTART: Duration = Duration::from_millis(100);

/// The task that renews leases. It stops when this is dropped.
#[derive(Debug)]
pub(crate) struct Renewer {
    shared: Arc<Shared>,
    /// `None` only in a fork of the process.
    pub(super) task: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    context: Context,
    watchdog: WatchdogClient,
    limiters: ShardLimiters,
    table: Mutex<Table>,
    /// The interruptions since the last pass.
    interrupted: Mutex<Vec<EventScope>>,
    /// Notified when a lease is due earlier than the others.
    earlier: Notify,
}

/// The leases that the task renews.
#[derive(Debug, Default)]
struct Table(Schedule<Arc<ActiveLease>>);

impl Renewer {
    pub(crate) fn start(context: &Context, watchdog: &WatchdogClient) -> Self {
        let shared = Arc::new(Shared {
            context: context.clone(),
            watchdog: watchdog.clone(),
            limiters: ShardLimiters::default(),
            table: Mutex::default(),
            interrupted: Mutex::default(),
            earlier: Notify::new(),
        });
        let task = Some(context.runtime.spawn(Arc::clone(&shared).run()));
        Self { shared, task }
    }

    /// Keeps a lease renewed from now on.
    pub(crate) fn insert(&self, lease: &Arc<ActiveLease>) {
        let now = self.shared.context.clock.now();
        let mut table = lock(&self.shared.table);
        table.remove(lease);
        self.shared.schedule(table, Arc::clone(lease), now);
    }

    /// Schedules a lease anew because a hold was entered or left, or because it was lost.
    pub(crate) fn revisit(&self, lease: &ActiveLease) {
        self.shared
            .reschedule(lease, self.shared.context.clock.now());
    }

    /// Has the store confirm a lease soon.
    pub(crate) fn check(&self, lease: &ActiveLease) {
        let now = self.shared.context.clock.now();
        lease.change(now, |inner| inner.lease.check(now));
        self.shared.reschedule(lease, now);
    }

    /// Has the store confirm these leases: the connection was interrupted.
    pub(crate) fn interrupted(&self, scope: EventScope) {
        let mut interrupted = lock(&self.shared.interrupted);
        if !interrupted.contains(&scope) {
            interrupted.push(scope);
        }
        drop(interrupted);
        self.shared.earlier.notify_one();
    }

    /// Removes a lease: no renewal of it is begun any more.
    pub(crate) fn remove(&self, lease: &ActiveLease) {
        lock(&self.shared.table).remove(lease);
        self.shared.watchdog.unregister(lease);
    }

    /// Lets the task go on when this is dropped.
    pub(super) fn detach(&mut self) {
        std::mem::forget((self.task.take(), Arc::clone(&self.shared)));
    }

    /// The leases that it keeps renewed.
    pub(crate) fn leases(&self) -> Vec<Arc<ActiveLease>> {
        lock(&self.shared.table).0.entries().cloned().collect()
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
    /// Adds a lease. Answers whether the task must be woken.
    fn insert(&mut self, lease: Arc<ActiveLease>, due: Instant) -> bool {
        // 0 means that it is not scheduled.
        let due = due.max(Instant::from_nanos(1));
        lease.scheduled.store(due.as_nanos(), Ordering::Relaxed);
        self.0.insert(due, lease.id.number, lease)
    }

    /// Removes a lease, if it is scheduled.
    fn remove(&mut self, lease: &ActiveLease) -> Option<Arc<ActiveLease>> {
        match lease.scheduled.swap(0, Ordering::Relaxed) {
            0 => None,
            due => self.0.remove(Instant::from_nanos(due), lease.id.number),
        }
    }
}

impl Shared {
    /// Renews the leases, and goes on after a panic.
    async fn run(self: Arc<Self>) {
        loop {
            {
                let mut work = pin!(self.renew_due());
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
                tracing::error!("the renewer panicked and is restarted");
            });
            tokio::time::sleep(RESTART).await;
        }
    }

    async fn renew_due(self: &Arc<Self>) -> Never {
        loop {
            let interrupted = std::mem::take(&mut *lock(&self.interrupted));
            if !interrupted.is_empty() {
                self.handle_interruptions(&interrupted).await;
            }
            while self.poll_due() {
                tokio::task::yield_now().await;
            }
            let next = lock(&self.table).0.arm();
            match next {
                Some(next) => tokio::select! {
                    () = self.context.clock.sleep_until(next) => {}
                    () = self.earlier.notified() => {}
                },
                None => self.earlier.notified().await,
            }
        }
    }

    /// Polls the leases that are due, and sends their renewals. Returns whether more may be due.
    fn poll_due(self: &Arc<Self>) -> bool {
        let mut batches = HashMap::<Route, Batch>::new();
        let mut changes = Vec::new();
        let mut polled = 0;
        let leases = {
            let mut table = lock(&self.table);
            let now = self.context.clock.now();
            while polled < LEASES_PER_PASS
                && let Some(lease) = table.0.pop_due(now)
            {
                polled += 1;
                let due = Instant::from_nanos(lease.scheduled.swap(0, Ordering::Relaxed));
                let (action, next, changed) = lease.poll(due, now);
                changes.extend(changed.map(|kind| (Arc::clone(&lease), kind)));
                if let Action::Renew(_) = action {
                    let route = self.context.route(&lease.key, lease.durability());
                    let batch = batches.entry(route).or_insert_with(|| Batch::new(self));
                    batch.push(Arc::clone(&lease), due);
                }
                match next {
                    Some(next) => {
                        table.insert(lease, next);
                    }
                    None => self.watchdog.unregister(&lease),
                }
            }
            table.0.len()
        };
        for (route, batch) in batches {
            self.send(route, batch);
        }
        for (lease, kind) in changes {
            lease.report(kind);
        }
        report(|| metrics::gauge!("leasehold_leases").set(leases as f64));
        polled == LEASES_PER_PASS
    }

    fn send(self: &Arc<Self>, route: Route, mut batch: Batch) {
        let limiter = self.limiters.of(route);
        let size = limiter.batch_max(batch.len());
        while batch.len() > 0 {
            let part = batch.split_off_front(size);
            self.context.runtime.spawn(part.renew(Arc::clone(&limiter)));
        }
    }

    /// Has the store confirm the leases that an interruption concerns.
    async fn handle_interruptions(&self, interrupted: &[EventScope]) {
        // After the interruption: a reply to a request that was sent before proves nothing.
        let now = self.context.clock.now();
        let concerned = |lease: &Arc<ActiveLease>| {
            let concerns = |scope: &EventScope| self.context.concerns(scope, &lease.key);
            interrupted.iter().any(concerns)
        };
        let leases: Vec<_> = lock(&self.table).0.entries().cloned().collect();
        let leases: Vec<_> = leases.into_iter().filter(concerned).collect();
        for part in leases.chunks(LEASES_PER_PASS) {
            for lease in part {
                lease.change(now, |inner| inner.lease.interrupted(now));
                self.reschedule(lease, now);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Schedules a lease anew, if it is scheduled at all. It calls no foreign code: no panic removes a lease
    /// from the table.
    fn reschedule(&self, lease: &ActiveLease, now: Instant) {
        let mut table = lock(&self.table);
        if let Some(lease) = table.remove(lease) {
            self.schedule(table, lease, now);
        }
    }

    /// Adds a lease to the table. Its due time is read while the table is locked: of two tasks that change the
    /// lease, the one that schedules it last knows both changes.
    fn schedule(&self, mut table: MutexGuard<'_, Table>, lease: Arc<ActiveLease>, now: Instant) {
        let (next, changed) = lease.next_event(now);
        let wakes = next.is_some_and(|due| table.insert(Arc::clone(&lease), due));
        drop(table);
        if wakes {
            self.earlier.notify_one();
        }
        match next {
            Some(_) => self.watchdog.register(&lease, now),
            None => self.watchdog.unregister(&lease),
        }
        if let Some(kind) = changed {
            lease.report(kind);
        }
    }
}

/// A value that cannot exist.
enum Never {}
