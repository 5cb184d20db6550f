//! The scheduler: polls each client when it is due.
//!
//! One task sleeps until the first client is due, collects the actions of all due clients, and queues them for the
//! shards of their stores, to which they are sent in batches. The task waits for no reply: a store or shard that is
//! stuck delays no other.
//!
//! A heartbeat does not move a client in the schedule. The client is polled at its old time and scheduled anew, so
//! thousands of heartbeats cost one poll per silence timeout.

mod batch;

use std::sync::Arc;

use leasehold::clock::{BootClock, Clock as _};
use leasehold_core::Name;
use leasehold_core::watchdog::{ClientMonitor, WatchdogAction};

use self::batch::send_batches;
use crate::client::WatchedClient;
use crate::schedule::{PendingAction, Route};
use crate::shared::Shared;

/// How many clients are polled before the task yields.
const POLL_MAX: usize = 256;

/// Polls due clients as long as it is polled itself.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        while poll_due(&shared) {
            tokio::task::yield_now().await;
        }
        shared.schedule.next_due().await;
    }
}

/// Polls the due clients and sends their actions. Returns whether more clients may be due.
fn poll_due(shared: &Arc<Shared>) -> bool {
    let now = BootClock.now();
    let due = shared.schedule.take_due(POLL_MAX, now);
    for client in &due {
        client.lock().log_liveness(now);
        queue(shared, client, |monitor| monitor.poll(now));
        shared.reschedule(client, now);
    }
    send_batches(shared);
    due.len() == POLL_MAX
}

/// Renews the leases of silent clients once more, and waits for the replies.
pub(crate) async fn hand_over(shared: &Arc<Shared>) {
    let now = BootClock.now();
    let mut routes = Vec::new();
    for client in shared.clients.all() {
        routes.extend(queue(shared, &client, |monitor| monitor.hand_over(now)));
        tokio::task::yield_now().await;
    }
    send_batches(shared);
    routes.sort_unstable();
    routes.dedup();
    shared.schedule.idle(&routes).await;
}

/// Queues the actions for leases of a client. Returns their routes.
fn queue(
    shared: &Shared,
    client: &Arc<WatchedClient>,
    poll: impl FnOnce(&mut ClientMonitor<Name>) -> Vec<(u64, WatchdogAction)>,
) -> Vec<Route> {
    let mut state = client.lock();
    let actions = poll(&mut state.monitor).into_iter();
    let pending = actions.filter_map(|(number, action)| {
        let (name, _) = state.monitor.lease(number)?;
        Some(PendingAction {
            client: Arc::clone(client),
            key: client.keyspace.key(name.clone()),
            number,
            action,
        })
    });
    let pending: Vec<_> = pending.collect();
    drop(state);
    let routes: Vec<_> = pending.iter().map(PendingAction::route).collect();
    let mut queues = shared.schedule.actions();
    for (route, pending) in routes.iter().zip(pending) {
        queues.push(*route, pending);
    }
    routes
}
