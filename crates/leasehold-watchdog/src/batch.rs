//! Batches of actions for one store and shard.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock as _};
use leasehold::store::{Key, Reply, Request};
use leasehold_core::watchdog::{ActionResult, WatchdogAction};
use leasehold_core::{Instant, Op, Outcome};
use tokio::sync::SemaphorePermit;

use crate::client::Client;
use crate::shard_limiter::ShardLimiter;
use crate::shared::Shared;
use crate::stores::Served;

/// One action for one lease.
#[derive(Debug)]
pub(crate) struct PendingAction {
    pub(crate) client: Arc<Client>,
    pub(crate) key: Key,
    pub(crate) number: u64,
    pub(crate) action: WatchdogAction,
}

/// Actions for leases of one store and shard. If it is dropped, the actions without a reply count as failed and
/// are tried again.
struct Batch {
    shared: Arc<Shared>,
    store: Arc<Served>,
    pending_actions: Vec<PendingAction>,
}

/// Sends the queue of a limiter in batches, until it is empty.
pub(crate) async fn send_all(shared: Arc<Shared>, store: Arc<Served>, limiter: Arc<ShardLimiter>) {
    loop {
        let turn = limiter.turn().await;
        let pending_actions = limiter.next_batch();
        if pending_actions.is_empty() {
            return;
        }
        let batch = Batch {
            shared: Arc::clone(&shared),
            store: Arc::clone(&store),
            pending_actions,
        };
        batch.run(&limiter, turn).await;
    }
}

impl Batch {
    /// Sends the actions that are still wanted, and handles the replies.
    async fn run(mut self, limiter: &ShardLimiter, turn: Option<SemaphorePermit<'_>>) {
        let (requests, longest) = self.begin();
        let served = Arc::clone(&self.store);
        let Some(store) = served.store() else {
            return;
        };
        if requests.is_empty() {
            return;
        }
        let sent = BootClock.now();
        let count = requests.len();
        // A store that never replies must not keep its limiter.
        let replies = tokio::time::timeout(longest, store.apply(requests)).await;
        let replies = replies.unwrap_or_default();
        let now = BootClock.now();
        limiter.answered(count, now.since(sent));
        drop(turn);
        self.answered(&replies, sent, now);
    }

    /// The requests that are still wanted, and the longest time for which a reply is of use.
    fn begin(&mut self) -> (Vec<Request>, Duration) {
        let now = BootClock.now();
        let (wanted, unwanted) = std::mem::take(&mut self.pending_actions)
            .into_iter()
            .partition(|pending_action| {
                pending_action
                    .client
                    .is_wanted(pending_action.number, pending_action.action, now)
            });
        self.pending_actions = wanted;
        self.fail(unwanted, now);
        let mut longest = Duration::ZERO;
        let requests = self.pending_actions.iter().map(|pending_action| {
            let (WatchdogAction::Renew(ttl) | WatchdogAction::Release(ttl)) = pending_action.action;
            longest = longest.max(ttl.as_duration());
            pending_action.request()
        });
        (requests.collect(), longest)
    }

    fn answered(&mut self, replies: &[Reply], sent: Instant, now: Instant) {
        let answered = self.pending_actions.len().min(replies.len());
        let mut failed = None;
        let mut clients = Clients::default();
        for (pending_action, reply) in self.pending_actions.drain(..answered).zip(replies) {
            let end = match reply {
                Reply::Applied { outcome, .. } => end(outcome),
                Reply::Rejected(error) | Reply::Unknown(error) => {
                    failed = Some(error);
                    ActionResult::Failed
                }
            };
            count(pending_action.action, end);
            pending_action.client.done(
                pending_action.number,
                pending_action.action,
                end,
                sent,
                now,
            );
            clients.add(pending_action.client);
        }
        if answered > 0 {
            self.store.answered(failed);
        }
        clients.look_again(&self.shared, now);
    }

    /// Reports these actions as failed.
    fn fail(&self, pending_actions: Vec<PendingAction>, now: Instant) {
        let mut clients = Clients::default();
        for pending_action in pending_actions {
            let PendingAction { number, action, .. } = pending_action;
            pending_action
                .client
                .done(number, action, ActionResult::Failed, now, now);
            clients.add(pending_action.client);
        }
        clients.look_again(&self.shared, now);
    }
}

/// The clients whose leases were in a batch. The leases of one client are adjacent.
#[derive(Default)]
struct Clients(Vec<Arc<Client>>);

impl Clients {
    fn add(&mut self, client: Arc<Client>) {
        let last = self.0.last();
        if last.is_none_or(|last| !Arc::ptr_eq(last, &client)) {
            self.0.push(client);
        }
    }

    fn look_again(self, shared: &Shared, now: Instant) {
        for client in self.0 {
            shared.look_again(&client, now);
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let pending_actions = std::mem::take(&mut self.pending_actions);
        self.fail(pending_actions, BootClock.now());
    }
}

impl PendingAction {
    fn request(&self) -> Request {
        let lease = self.client.lease(self.number);
        let op = match self.action {
            WatchdogAction::Renew(ttl) => Op::Renew { lease, ttl },
            WatchdogAction::Release(ttl) => Op::Release {
                lease,
                count: 0,
                ttl,
            },
        };
        Request::new(self.key.clone(), op)
    }
}

/// The result of an action, from the store's reply.
fn end(outcome: &Outcome) -> ActionResult {
    match outcome {
        Outcome::Renewed => ActionResult::Renewed,
        Outcome::Released { .. } | Outcome::Lost(_) => ActionResult::Over,
        _ => ActionResult::Failed,
    }
}

fn count(action: WatchdogAction, end: ActionResult) {
    let what = match action {
        WatchdogAction::Renew(_) => "renewal",
        WatchdogAction::Release(_) => "release",
    };
    let how = match end {
        ActionResult::Renewed => "renewed",
        ActionResult::Over => "over",
        ActionResult::Failed => "failed",
    };
    metrics::counter!("leasehold_watchdog_actions_total", "action" => what, "end" => how)
        .increment(1);
}
