//! When the clients of a node are polled, and the queues of the actions for their leases.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::__private::store::{Key, Shard};
use leasehold::clock::{BootClock, Clock as _};
use leasehold_core::watchdog::WatchdogAction;
use leasehold_core::{Instant, Schedule, ShardLimiter};
use tokio::sync::Notify;

use crate::client::WatchedClient;

/// The clients by the instants at which they are due, and the actions that are not sent yet.
#[derive(Debug, Default)]
pub(crate) struct ClientSchedule {
    clients: Mutex<Schedule<Arc<WatchedClient>>>,
    /// Notified when a client is due earlier than the others, and when the scheduler has to send the next batch.
    earlier: Notify,
    actions: Mutex<ShardLimiter<Route, PendingAction>>,
    /// Notified when a batch has ended.
    batch_ended: Notify,
}

/// A queue of actions. Releases have their own, so that they do not wait for renewals: a waiter depends on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Route {
    store: usize,
    shard: Shard,
    release: bool,
}

/// One action for one lease.
#[derive(Debug)]
pub(crate) struct PendingAction {
    pub(crate) client: Arc<WatchedClient>,
    pub(crate) key: Key,
    pub(crate) number: u64,
    pub(crate) action: WatchdogAction,
}

impl PendingAction {
    pub(crate) fn route(&self) -> Route {
        let store = &self.client.store;
        let shard = store.store().map(|store| store.shard(&self.key));
        Route {
            store: store.index,
            // The actions for a store that is not open yet fail on any route.
            shard: shard.unwrap_or(Shard(0)),
            release: matches!(self.action, WatchdogAction::Release(_)),
        }
    }
}

impl ClientSchedule {
    fn clients(&self) -> MutexGuard<'_, Schedule<Arc<WatchedClient>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn actions(&self) -> MutexGuard<'_, ShardLimiter<Route, PendingAction>> {
        self.actions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Schedules a client for its next event, which may be due immediately. A client that is due earlier keeps its place.
    pub(crate) fn insert(&self, client: &Arc<WatchedClient>, now: Instant) {
        let mut clients = self.clients();
        let Some(due) = client.lock().monitor.next_event(now) else {
            return;
        };
        let before = client.due_time.get();
        if before.is_none_or(|before| due < before) && clients.insert(Arc::clone(client), due) {
            self.earlier.notify_one();
        }
    }

    /// Removes the due clients, at most so many.
    pub(crate) fn take_due(&self, max: usize, now: Instant) -> Vec<Arc<WatchedClient>> {
        let mut clients = self.clients();
        let due = std::iter::from_fn(|| clients.pop_due(now));
        due.take(max).map(|(client, _)| client).collect()
    }

    /// Waits until a client may be due.
    pub(crate) async fn next_due(&self) {
        let next = self.clients().arm();
        let due = async {
            match next {
                Some(next) => BootClock.sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = due => {}
            () = self.earlier.notified() => {}
        }
    }

    /// Reports the end of a batch, and how many actions it had and how long the reply took, if it was sent.
    pub(crate) fn finish_batch(&self, route: Route, round_trip: Option<(usize, Duration)>) {
        self.actions().finished(route, round_trip);
        self.batch_ended.notify_waiters();
        if round_trip.is_none() {
            // The scheduler sends the next batch: this one may be dropped by a node that stops.
            self.earlier.notify_one();
        }
    }

    /// Waits until nothing is queued or in flight on these routes.
    pub(crate) async fn idle(&self, routes: &[Route]) {
        loop {
            let batch_ended = self.batch_ended.notified();
            let is_idle = |route: &Route| self.actions().is_idle(*route);
            if routes.iter().all(is_idle) {
                return;
            }
            batch_ended.await;
        }
    }
}
