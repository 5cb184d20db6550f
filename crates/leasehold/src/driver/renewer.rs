//! Renews the leases of this process in time, and tells their holders when that fails.
//!
//! One task sleeps until the first lease is due, asks every due lease what it wants, and sends the
//! renewals in batches. It waits for no answer: a slow batch delays no other. What an answer means
//! is decided by [`leasehold_core::Lease`]; what a silence means, too.

use std::sync::Arc;

use leasehold_core::{Action, Instant, Schedule, State, Ttl};
use tokio::sync::Notify;

use super::clock::Clock;
use super::held::Held;
use super::primitives::{JoinHandle, Mutex, MutexGuard, Runtime, lock};
use crate::store::Store;

/// How many leases one renewal request carries: at 256 the cost per lease has flattened out.
const BATCH_MAX: usize = 256;

/// The renewing task. It stops when this is dropped.
#[derive(Debug)]
pub(crate) struct Renewer {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    runtime: Runtime,
    table: Mutex<Table>,
    earlier: Notify,
}

#[derive(Debug, Default)]
struct Table {
    schedule: Schedule<Arc<Held>>,
    /// When the task will look next. Stays where it is when leases go, so that taking and
    /// releasing a lock over and over does not wake the task each time.
    armed: Option<Instant>,
}

impl Renewer {
    pub(crate) fn start(store: Arc<dyn Store>, clock: Arc<dyn Clock>, runtime: &Runtime) -> Self {
        let shared = Arc::new(Shared {
            store,
            clock,
            runtime: runtime.clone(),
            table: Mutex::default(),
            earlier: Notify::new(),
        });
        let task = runtime.spawn(Arc::clone(&shared).run());
        Self { shared, task }
    }

    /// Looks after a lease from now on.
    pub(crate) fn insert(&self, held: &Arc<Held>) {
        if let Some(due) = held.next_event(self.shared.clock.now()) {
            let mut table = self.shared.table();
            table.schedule.insert(held.id.number, due, Arc::clone(held));
            self.shared.wake_for(&mut table, due);
        }
    }

    /// Looks at a lease anew because one of its holds came or went.
    pub(crate) fn revisit(&self, held: &Held) {
        let now = self.shared.clock.now();
        let next = held.next_event(now);
        let over = self.shared.move_on(held.id.number, next);
        if over {
            report(held, now);
        }
    }

    /// Asks the store soon whether it still knows a lease.
    pub(crate) fn check(&self, held: &Held) {
        let next = held.check(self.shared.clock.now());
        self.shared.move_on(held.id.number, next);
    }

    /// Asks the store whether it still knows each lease: the connection was interrupted.
    pub(crate) fn interrupted(&self) {
        let now = self.shared.clock.now();
        for held in self.leases() {
            let next = held.interrupted(now);
            self.shared.move_on(held.id.number, next);
            report(&held, now);
        }
    }

    /// Forgets a lease: it is not renewed again.
    pub(crate) fn remove(&self, held: &Held) {
        self.shared.table().schedule.remove(held.id.number);
    }

    /// The leases it looks after.
    pub(crate) fn leases(&self) -> Vec<Arc<Held>> {
        self.shared.table().schedule.entries().cloned().collect()
    }
}

impl Drop for Renewer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    async fn run(self: Arc<Self>) {
        loop {
            let due = self.poll_due();
            for batch in due.chunks(BATCH_MAX) {
                let renewal = Arc::clone(&self).renew(batch.to_vec());
                self.runtime.spawn(renewal);
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

    /// Tells every due lease the time and collects those that want to be renewed.
    fn poll_due(&self) -> Vec<(Arc<Held>, Ttl)> {
        let mut renewals = Vec::new();
        let mut table = self.table();
        let now = self.clock.now();
        while let Some((id, held)) = table.schedule.first_due(now) {
            let (action, next) = held.poll(now);
            match next {
                Some(next) => table.schedule.reschedule(id, next),
                None => {
                    table.schedule.remove(id);
                    report(&held, now);
                }
            }
            if let Action::Renew(ttl) = action {
                renewals.push((held, ttl));
            }
        }
        renewals
    }

    async fn renew(self: Arc<Self>, leases: Vec<(Arc<Held>, Ttl)>) {
        let requests = leases.iter().map(|(held, ttl)| held.renewal(*ttl));
        let sent = self.clock.now();
        let replies = self.store.apply(requests.collect()).await;
        let now = self.clock.now();
        metrics::counter!("leasehold_round_trips_total").increment(1);
        metrics::counter!("leasehold_renewals_total").increment(leases.len() as u64);
        for ((held, ttl), reply) in leases.iter().zip(&replies) {
            let next = held.renewal_answered(reply, sent, *ttl, now);
            self.move_on(held.id.number, next);
            report(held, now);
        }
    }

    /// Looks at a lease at another instant, or never again. Answers whether it was looked after
    /// until now and is not any more.
    fn move_on(&self, id: u64, next: Option<Instant>) -> bool {
        let mut table = self.table();
        match next {
            Some(next) => {
                table.schedule.reschedule(id, next);
                self.wake_for(&mut table, next);
                false
            }
            None => table.schedule.remove(id).is_some(),
        }
    }

    fn wake_for(&self, table: &mut Table, due: Instant) {
        if table.armed.is_none_or(|armed| due < armed) {
            table.armed = Some(due);
            self.earlier.notify_one();
        }
    }
}

/// Logs and counts what a holder must know.
fn report(held: &Held, now: Instant) {
    let lock = held.key.name.as_str();
    let state = held.lock().lease.state(now);
    match state {
        State::Held { .. } => {}
        State::Jeopardy { cause, .. } => {
            metrics::counter!("leasehold_jeopardy_total").increment(1);
            tracing::warn!(lock, lease = %held.id, %cause, "lease in jeopardy");
        }
        State::Lost(cause) => {
            metrics::counter!("leasehold_lost_total").increment(1);
            tracing::error!(lock, lease = %held.id, %cause, "lease lost");
        }
    }
}
