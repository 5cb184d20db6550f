//! Deeds that travel together.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Durability;
use leasehold::clock::{BootClock, Clock as _};
use leasehold::store::{Key, Reply, Request};
use leasehold_core::watchdog::{Deed, End};
use leasehold_core::{Instant, Op, Outcome};
use tokio::sync::SemaphorePermit;

use crate::client::Client;
use crate::lanes::Lane;
use crate::shared::Shared;
use crate::stores::Served;

/// One deed for one lease.
#[derive(Debug)]
pub(crate) struct Errand {
    pub(crate) client: Arc<Client>,
    pub(crate) key: Key,
    pub(crate) number: u64,
    pub(crate) deed: Deed,
}

/// Deeds for leases of one store and shard. Dropped at any point, those without an answer have failed, and
/// are tried again.
struct Batch {
    shared: Arc<Shared>,
    store: Arc<Served>,
    errands: Vec<Errand>,
}

/// Sends what waits on a lane, in batches, until nothing does.
pub(crate) async fn send_all(shared: Arc<Shared>, store: Arc<Served>, lane: Arc<Lane>) {
    loop {
        let turn = lane.turn().await;
        let errands = lane.next_batch();
        if errands.is_empty() {
            return;
        }
        let batch = Batch {
            shared: Arc::clone(&shared),
            store: Arc::clone(&store),
            errands,
        };
        batch.run(&lane, turn).await;
    }
}

impl Batch {
    /// Does what is still wanted.
    async fn run(mut self, lane: &Lane, turn: Option<SemaphorePermit<'_>>) {
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
        // A store that never answers must not keep its lane.
        let replies = tokio::time::timeout(longest, store.apply(requests)).await;
        let replies = replies.unwrap_or_default();
        let now = BootClock.now();
        lane.answered(count, now.since(sent));
        drop(turn);
        self.answered(&replies, sent, now);
    }

    /// The requests, without those that are not wanted any more, and how long an answer is of use.
    fn begin(&mut self) -> (Vec<Request>, Duration) {
        let now = BootClock.now();
        let (wanted, unwanted) = std::mem::take(&mut self.errands)
            .into_iter()
            .partition(|errand| errand.client.is_wanted(errand.number, errand.deed, now));
        self.errands = wanted;
        self.fail(unwanted, now);
        let mut longest = Duration::ZERO;
        let requests = self.errands.iter().map(|errand| {
            let (Deed::Renew(ttl) | Deed::Release(ttl)) = errand.deed;
            longest = longest.max(ttl.as_duration());
            errand.request()
        });
        (requests.collect(), longest)
    }

    fn answered(&mut self, replies: &[Reply], sent: Instant, now: Instant) {
        let answered = self.errands.len().min(replies.len());
        let mut failed = None;
        let mut clients = Clients::default();
        for (errand, reply) in self.errands.drain(..answered).zip(replies) {
            let end = match reply {
                Reply::Applied { outcome, .. } => end(outcome),
                Reply::Rejected(error) | Reply::Unknown(error) => {
                    failed = Some(error);
                    End::Failed
                }
            };
            count(errand.deed, end);
            errand
                .client
                .done(errand.number, errand.deed, end, sent, now);
            clients.add(errand.client);
        }
        if answered > 0 {
            self.store.answered(failed);
        }
        clients.look_again(&self.shared, now);
    }

    /// These were not done.
    fn fail(&self, errands: Vec<Errand>, now: Instant) {
        let mut clients = Clients::default();
        for errand in errands {
            let Errand { number, deed, .. } = errand;
            errand.client.done(number, deed, End::Failed, now, now);
            clients.add(errand.client);
        }
        clients.look_again(&self.shared, now);
    }
}

/// Whose leases were in a batch. Those of one come together.
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
        let errands = std::mem::take(&mut self.errands);
        self.fail(errands, BootClock.now());
    }
}

impl Errand {
    fn request(&self) -> Request {
        let lease = self.client.lease(self.number);
        let op = match self.deed {
            Deed::Renew(ttl) => Op::Renew { lease, ttl },
            Deed::Release(ttl) => Op::Release {
                lease,
                count: 0,
                ttl,
            },
        };
        Request {
            key: self.key.clone(),
            op,
            durability: Durability::None,
        }
    }
}

/// What a store's answer means for a lease.
fn end(outcome: &Outcome) -> End {
    match outcome {
        Outcome::Renewed => End::Renewed,
        Outcome::Released { .. } | Outcome::Lost(_) => End::Over,
        _ => End::Failed,
    }
}

fn count(deed: Deed, end: End) {
    let what = match deed {
        Deed::Renew(_) => "renewal",
        Deed::Release(_) => "release",
    };
    let how = match end {
        End::Renewed => "renewed",
        End::Over => "over",
        End::Failed => "failed",
    };
    metrics::counter!("leasehold_watchdog_deeds_total", "deed" => what, "end" => how).increment(1);
}
