//! Renews the leases of this process in time, and notifies their holders when that fails.
//!
//! One task sleeps until the first lease is due, polls every due lease, and queues the renewals for their shards. A
//! [`ShardLimiter`] cuts the queues into batches, each sent in a task of its own. No task waits for another: a slow
//! shard does not delay another. What a reply or a missing reply means for a lease is decided by
//! [`leasehold_core::Lease`].
//!
//! A panic, of a store or of this code, fails the renewals that it hits, which are retried, and the task goes
//! on. Without the task, each lease would still be lost in time, by the clock.

mod batch;

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold_core::{Action, Instant, Schedule, ShardLimiter};
use tokio::sync::Notify;

use self::batch::{Batch, DueLease};
use super::active_lease::ActiveLease;
use super::context::{Context, Route};
use super::metrics::LeasesMetric;
use super::primitives::{JoinHandle, Mutex, MutexGuard, lock, report};
use super::watchdog::WatchdogClient;
use crate::store::EventScope;

/// How many leases are processed before the task yields to others.
const LEASES_PER_PASS: usize = 1_024;

/// The interval between a panic and the restart of the task.
const RESTART: Duration = Duration::from_millis(100);

/// The task that renews leases. It stops when this is dropped.
pub(crate) struct Renewer {
    shared: Arc<Shared>,
    /// `None` only in a fork of the process.
    pub(super) task: Option<JoinHandle<()>>,
}

struct Shared {
    context: Context,
    watchdog: WatchdogClient,
    limiter: Mutex<ShardLimiter<Route, DueLease>>,
    /// The leases that the task renews.
    schedule: Mutex<Schedule<Arc<ActiveLease>>>,
    /// The interruptions since the last pass.
    interrupted: Mutex<Vec<EventScope>>,
    /// Notified when a lease is due earlier than the others, and when the task has to send the next batch.
    earlier: Notify,
    metric: LeasesMetric,
}

impl Renewer {
    pub(crate) fn start(context: &Context, watchdog: &WatchdogClient) -> Self {
        let shared = Arc::new(Shared {
            context: context.clone(),
            watchdog: watchdog.clone(),
            limiter: Mutex::default(),
            schedule: Mutex::default(),
            interrupted: Mutex::default(),
            earlier: Notify::new(),
            metric: LeasesMetric::default(),
        });
        let task = Some(context.runtime.spawn(Arc::clone(&shared).run()));
        Self { shared, task }
    }

    /// Keeps a lease renewed from now on.
    pub(crate) fn insert(&self, lease: &Arc<ActiveLease>, now: Instant) {
        let schedule = lock(&self.shared.schedule);
        self.shared.schedule(schedule, Arc::clone(lease), now);
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

    /// Removes a lease: no other renewal of it is begun.
    pub(crate) fn remove(&self, lease: &ActiveLease) {
        lock(&self.shared.schedule).remove(lease);
        self.shared.watchdog.unregister(lease);
    }

    /// Lets the task go on when this is dropped.
    pub(super) fn detach(&mut self) {
        std::mem::forget((self.task.take(), Arc::clone(&self.shared)));
    }

    /// The leases that it keeps renewed.
    pub(crate) fn leases(&self) -> Vec<Arc<ActiveLease>> {
        lock(&self.shared.schedule).entries().cloned().collect()
    }
}

impl Drop for Renewer {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
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
            let next = lock(&self.schedule).arm();
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
        let mut renewals = Batch::new(self, None, Vec::new());
        let mut changes = Vec::new();
        let mut polled = 0;
        let leases = {
            let mut schedule = lock(&self.schedule);
            let now = self.context.clock.now();
            while polled < LEASES_PER_PASS
                && let Some((lease, due)) = schedule.pop_due(now)
            {
                polled += 1;
                let (action, next, changed) = lease.poll(due, now);
                changes.extend(changed.map(|kind| (Arc::clone(&lease), kind)));
                if let Action::Renew(_) = action {
                    renewals.push(Arc::clone(&lease), due);
                }
                match next {
                    Some(next) => {
                        schedule.insert(lease, next);
                    }
                    None => self.watchdog.unregister(&lease),
                }
            }
            schedule.len()
        };
        renewals.queue();
        self.send_batches();
        for (lease, kind) in changes {
            lease.report(kind);
        }
        self.metric.set(leases);
        polled == LEASES_PER_PASS
    }

    /// Sends all batches that the limiter allows.
    fn send_batches(self: &Arc<Self>) {
        loop {
            let next = lock(&self.limiter).next_batch();
            let Some((route, leases)) = next else {
                return;
            };
            let batch = Batch::new(self, Some(route), leases);
            self.context.runtime.spawn(batch.renew());
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
        let leases: Vec<_> = lock(&self.schedule).entries().cloned().collect();
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
    /// from the schedule.
    fn reschedule(&self, lease: &ActiveLease, now: Instant) {
        let mut schedule = lock(&self.schedule);
        if let Some(lease) = schedule.remove(lease) {
            self.schedule(schedule, lease, now);
        }
    }

    /// Schedules a lease. Its due time is read while the schedule is locked: of two tasks that change the lease, the
    /// one that schedules it last knows both changes.
    fn schedule(
        &self,
        mut schedule: MutexGuard<'_, Schedule<Arc<ActiveLease>>>,
        lease: Arc<ActiveLease>,
        now: Instant,
    ) {
        let (next, changed) = lease.next_event(now);
        schedule.remove(&lease);
        let wakes = next.is_some_and(|due| schedule.insert(Arc::clone(&lease), due));
        // Also under the lock: a lease that another task removes is not registered behind that.
        match next {
            Some(_) => self.watchdog.register(&lease, now),
            None => self.watchdog.unregister(&lease),
        }
        drop(schedule);
        if wakes {
            self.earlier.notify_one();
        }
        if let Some(kind) = changed {
            lease.report(kind);
        }
    }
}

/// A value that cannot exist.
enum Never {}
