//! The scheduler: polls each client when it is due.
//!
//! One task sleeps until the first client is due, collects the actions of all due clients, and queues them on the
//! limiters of their shards, which send them in batches. The task waits for no reply: a store or shard that is
//! stuck delays no other.
//!
//! A heartbeat does not move a client in the schedule. The client is polled at its old time and scheduled anew, so
//! thousands of heartbeats cost one poll per silence timeout.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold::clock::{BootClock, Clock as _};
use leasehold::store::Shard;
use leasehold_core::watchdog::{ClientMonitor, WatchdogAction};
use leasehold_core::{Instant, Name, Schedule};
use tokio::sync::Notify;

use crate::batch::{PendingAction, send_all};
use crate::client::Client;
use crate::shard_limiter::{RouteKey, ShardLimiter, UNDER_WAY_MAX};
use crate::shared::Shared;
use crate::stores::Served;

/// How many clients are polled before the task yields.
const LOOK_MAX: usize = 256;

/// The schedule of all clients.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    table: Mutex<Table>,
    earlier: Notify,
}

#[derive(Debug, Default)]
struct Table {
    schedule: Schedule<Arc<Client>>,
    /// When the task wakes up next.
    armed: Option<Instant>,
}

impl Scheduler {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Schedules a client for its next event, which may be due at once.
    pub(crate) fn look_at(&self, client: &Arc<Client>, now: Instant) {
        let mut table = self.table();
        let Some(due) = client.lock().charge.next_event(now) else {
            return;
        };
        let due = due.max(Instant::from_nanos(1));
        let before = client.scheduled.load(Ordering::Relaxed);
        if before != 0 && before <= due.as_nanos() {
            return;
        }
        table
            .schedule
            .remove(Instant::from_nanos(before), client.serial);
        client.scheduled.store(due.as_nanos(), Ordering::Relaxed);
        table
            .schedule
            .insert(due, client.serial, Arc::clone(client));
        if table.armed.is_none_or(|armed| due < armed) {
            table.armed = Some(due);
            self.earlier.notify_one();
        }
    }

    /// Polls due clients as long as it is polled itself.
    pub(crate) async fn run(shared: Arc<Shared>) {
        let scheduler = &shared.scheduler;
        loop {
            while scheduler.poll_due(&shared) {
                tokio::task::yield_now().await;
            }
            let next = {
                let mut table = scheduler.table();
                table.armed = table.schedule.next();
                table.armed
            };
            match next {
                Some(next) => tokio::select! {
                    () = BootClock.sleep_until(next) => {}
                    () = scheduler.earlier.notified() => {}
                },
                None => scheduler.earlier.notified().await,
            }
        }
    }

    /// Polls the due clients and sends their actions. Returns whether more clients may be due.
    fn poll_due(&self, shared: &Arc<Shared>) -> bool {
        let now = BootClock.now();
        let due = self.take_due(now);
        let more = due.len() == LOOK_MAX;
        let mut pending_actions = PendingActions::default();
        for client in due {
            let mut state = client.lock();
            state.note(now);
            for (number, action) in state.charge.poll(now) {
                pending_actions.add(&client, &state.charge, number, action);
            }
            drop(state);
            if !shared.clients.forget_if_over(&client, now) {
                self.look_at(&client, now);
            }
        }
        pending_actions.send(shared);
        more
    }

    fn take_due(&self, now: Instant) -> Vec<Arc<Client>> {
        let mut due = Vec::new();
        let mut table = self.table();
        while due.len() < LOOK_MAX
            && let Some(client) = table.schedule.pop_due(now)
        {
            client.scheduled.store(0, Ordering::Relaxed);
            due.push(client);
        }
        due
    }

    /// Renews the leases of silent clients once more, and waits for the replies.
    pub(crate) async fn hand_over(shared: &Arc<Shared>) {
        let now = BootClock.now();
        let mut pending_actions = PendingActions::default();
        for client in shared.clients.all() {
            let mut state = client.lock();
            for (number, action) in state.charge.hand_over(now) {
                pending_actions.add(&client, &state.charge, number, action);
            }
            drop(state);
            tokio::task::yield_now().await;
        }
        for limiter in pending_actions.send(shared) {
            limiter.idle().await;
        }
    }
}

/// Pending actions by store and limiter.
#[derive(Default)]
struct PendingActions(HashMap<(*const Served, RouteKey), Vec<PendingAction>>);

impl PendingActions {
    fn add(
        &mut self,
        client: &Arc<Client>,
        charge: &ClientMonitor<Name>,
        number: u64,
        action: WatchdogAction,
    ) {
        let Some((name, _)) = charge.lease(number) else {
            return;
        };
        let key = client.key(name);
        let shard = client.store.store().map(|store| store.shard(&key));
        let way = RouteKey {
            // The actions for a store that is not open yet fail on any limiter.
            shard: shard.unwrap_or(Shard(0)),
            release: matches!(action, WatchdogAction::Release(_)),
        };
        let pending_actions = self.0.entry((Arc::as_ptr(&client.store), way)).or_default();
        pending_actions.push(PendingAction {
            client: Arc::clone(client),
            key,
            number,
            action,
        });
    }

    /// Queues the actions and starts to send them. Returns their limiters.
    fn send(self, shared: &Arc<Shared>) -> Vec<Arc<ShardLimiter>> {
        let mut limiters = Vec::new();
        for ((_, way), pending_actions) in self.0 {
            let Some(store) = pending_actions
                .first()
                .map(|pending_action| Arc::clone(&pending_action.client.store))
            else {
                continue;
            };
            let limiter = store.limiters.of(way);
            limiter.push(pending_actions);
            for _ in 0..UNDER_WAY_MAX {
                let (shared, store) = (Arc::clone(shared), Arc::clone(&store));
                let sent = send_all(Arc::clone(&shared), store, Arc::clone(&limiter));
                shared.tasks.spawn(sent);
            }
            limiters.push(limiter);
        }
        limiters
    }
}
