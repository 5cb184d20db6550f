//! Batches of actions for one store and shard.

use std::sync::Arc;
use std::time::Duration;

use leasehold::__private::store::{Reply, Request};
use leasehold::clock::{BootClock, Clock as _};
use leasehold_core::watchdog::{ActionResult, WatchdogAction};
use leasehold_core::{Instant, Op, Outcome};

use crate::schedule::{PendingAction, Route};
use crate::shared::Shared;
use crate::stores::ServedStore;

/// Actions for leases of one store and shard. If it is dropped, the actions without a reply count as failed and
/// are tried again.
struct Batch {
    shared: Arc<Shared>,
    /// The route on which it is in flight.
    route: Option<Route>,
    actions: Vec<PendingAction>,
}

/// Sends all batches that the limiter allows.
pub(super) fn send_batches(shared: &Arc<Shared>) {
    loop {
        let next = shared.schedule.actions().next_batch();
        let Some((route, actions)) = next else {
            return;
        };
        let batch = Batch {
            shared: Arc::clone(shared),
            route: Some(route),
            actions,
        };
        shared.tasks.spawn(batch.run());
    }
}

impl Batch {
    /// Sends the actions that are still wanted, and handles the replies.
    async fn run(mut self) {
        let sent = BootClock.now();
        let (requests, reply_timeout) = self.begin(sent);
        let Some(first) = self.actions.first() else {
            return;
        };
        let served = Arc::clone(&first.client.store);
        let Some(store) = served.store() else {
            return;
        };
        let count = requests.len();
        // A store that never replies must not keep its route.
        let replies = tokio::time::timeout(reply_timeout, store.apply(requests)).await;
        let now = BootClock.now();
        self.finish(Some((count, now.since(sent))));
        send_batches(&self.shared);
        self.handle_replies(&served, &replies.unwrap_or_default(), sent, now);
    }

    /// The requests that are still wanted, and the longest time for which a reply is of use.
    fn begin(&mut self, now: Instant) -> (Vec<Request>, Duration) {
        let is_wanted = |it: &PendingAction| {
            let state = it.client.lock();
            state.monitor.is_wanted(it.number, it.action, now)
        };
        let (wanted, unwanted) = self.actions.drain(..).partition(is_wanted);
        self.actions = wanted;
        self.fail(unwanted, now);
        let ttl = |it: &PendingAction| match it.action {
            WatchdogAction::Renew(ttl) | WatchdogAction::Release(ttl) => ttl.as_duration(),
        };
        let longest = self.actions.iter().map(ttl).max();
        let requests = self.actions.iter().map(request).collect();
        (requests, longest.unwrap_or_default())
    }

    /// Allows the next batch on the route.
    fn finish(&mut self, round_trip: Option<(usize, Duration)>) {
        if let Some(route) = self.route.take() {
            self.shared.schedule.finish_batch(route, round_trip);
        }
    }

    fn handle_replies(
        &mut self,
        store: &ServedStore,
        replies: &[Reply],
        sent: Instant,
        now: Instant,
    ) {
        let replied = self.actions.len().min(replies.len());
        if replied == 0 {
            return;
        }
        let mut failed = None;
        let finished = self.actions.drain(..replied).zip(replies);
        let finished = finished.map(|(pending, reply)| {
            let result = match reply {
                Reply::Applied { outcome, .. } => result(outcome),
                Reply::Rejected(error) | Reply::Unknown(error) => {
                    failed = Some(error);
                    ActionResult::Failed
                }
            };
            count(pending.action, result);
            (pending, result)
        });
        report(&self.shared, finished, sent, now);
        store.log_result(failed);
    }

    /// Reports these actions as failed.
    fn fail(&self, actions: Vec<PendingAction>, now: Instant) {
        let failed = actions.into_iter();
        let failed = failed.map(|pending| (pending, ActionResult::Failed));
        report(&self.shared, failed, now, now);
    }
}

/// Reports the results of actions to their clients.
fn report(
    shared: &Shared,
    finished: impl Iterator<Item = (PendingAction, ActionResult)>,
    sent: Instant,
    now: Instant,
) {
    let mut clients = Vec::new();
    for (pending, result) in finished {
        let (number, action) = (pending.number, pending.action);
        let client = pending.client;
        client.handle_result(number, action, result, sent, now);
        clients.push(client);
    }
    // The leases of one client are adjacent.
    clients.dedup_by(|a, b| Arc::ptr_eq(a, b));
    for client in clients {
        shared.reschedule(&client, now);
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.finish(None);
        let actions = std::mem::take(&mut self.actions);
        self.fail(actions, BootClock.now());
    }
}

fn request(pending: &PendingAction) -> Request {
    let lease = pending.client.lease(pending.number);
    let op = match pending.action {
        WatchdogAction::Renew(ttl) => Op::renew(lease, ttl),
        WatchdogAction::Release(_) => Op::release(lease),
    };
    Request::new(pending.key.clone(), op)
}

/// The result of an action, from the store's reply.
fn result(outcome: &Outcome) -> ActionResult {
    match outcome {
        Outcome::Kept => ActionResult::Renewed,
        Outcome::Released | Outcome::Lost(_) => ActionResult::NotHeld,
        _ => ActionResult::Failed,
    }
}

fn count(action: WatchdogAction, result: ActionResult) {
    let action = match action {
        WatchdogAction::Renew(_) => "renewal",
        WatchdogAction::Release(_) => "release",
    };
    let result = match result {
        ActionResult::Renewed => "renewed",
        ActionResult::NotHeld => "not_held",
        ActionResult::Failed => "failed",
    };
    let actions = "leasehold_watchdog_actions_total";
    metrics::counter!(actions, "action" => action, "result" => result).increment(1);
}
