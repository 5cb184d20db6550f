//! Sends a batch to all masters at once, and waits until a majority has decided each request.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use leasehold_core::Op;
use leasehold_core::quorum::{Masters, Size};
use tokio::time::{Instant, sleep_until};

use super::admission::Admission;
use super::leftovers::Leftovers;
use super::master::Master;
use super::tally::Tally;
use crate::store::api::{BoxFuture, Key, Reply, Request};

/// The wait limit of one phase of an acquisition: this fraction of the ttl, within these bounds. If the
/// usual round trip is long, it is this multiple of that, but no more than a tenth of the ttl.
const PHASE_DIVISOR: u32 = 200;
const PHASE_MIN: Duration = Duration::from_millis(5);
const PHASE_MAX: Duration = Duration::from_millis(250);
const ROUND_TRIPS: u32 = 4;

/// The shortest wait limit of the other operations. Their replies count however late they are, but other
/// requests wait behind them.
const VOTE_MIN: Duration = Duration::from_secs(1);

/// The replies of a master in one phase, and the positions of their requests.
struct MasterReplies {
    master: usize,
    second: bool,
    positions: Vec<usize>,
    replies: Vec<Reply>,
}

type Calls = FuturesUnordered<BoxFuture<'static, MasterReplies>>;

/// Sends batches to the masters of a store.
#[derive(Clone, Copy)]
pub(super) struct Broadcast<'a> {
    pub(super) nodes: &'a [Arc<Master>],
    pub(super) size: Size,
    pub(super) admission: &'a Arc<Admission>,
    pub(super) leftovers: &'a Leftovers,
}

impl Broadcast<'_> {
    /// The reply to each request, with its key. Calls that are still in flight then continue in the background.
    pub(super) async fn apply(self, batch: Vec<Request>) -> Vec<(Key, Reply)> {
        if batch.is_empty() {
            return Vec::new();
        }
        let limit = phase_limit(self.nodes, &batch);
        let tallies = batch.into_iter();
        let tallies = tallies.map(|request| Tally::new(self.size, request, self.leftovers));
        let mut tallies: Vec<_> = tallies.collect();
        let calls = self.decide(&mut tallies, limit).await;
        for tally in &tallies {
            if let Some((gone, request)) = tally.refill() {
                for (master, node) in among(self.nodes, gone) {
                    calls.push(call(node, master, true, Vec::new(), vec![request.clone()]));
                }
            }
            tally.note(self.leftovers);
        }
        finish_in_background(calls);
        let replies = tallies.into_iter();
        replies
            .map(|tally| tally.into_reply(|namespace| self.admission.kept_out(namespace)))
            .collect()
    }

    /// Sends the requests and counts the replies until each request is decided. Returns the calls that are
    /// still in flight.
    async fn decide(self, tallies: &mut [Tally], limit: Duration) -> Calls {
        let mut calls = Calls::new();
        for (master, node) in self.nodes.iter().enumerate() {
            let open = tallies.iter().enumerate();
            let open =
                open.filter_map(|(position, tally)| Some((position, tally.request_to(master)?)));
            let (positions, requests): (Vec<_>, Vec<_>) = open.unzip();
            if !positions.is_empty() {
                calls.push(call(node, master, false, positions, requests));
            }
        }
        let mut end = Some(Instant::now() + limit);
        let vote_limit = limit.max(usual(self.nodes)).max(VOTE_MIN);
        let vote_end = Instant::now() + vote_limit;
        let mut vote_closed = false;
        while !tallies.iter().all(Tally::is_done) {
            tokio::select! {
                biased;
                replied = calls.next() => {
                    let Some(replied) = replied else { break };
                    let MasterReplies { master, replies, positions, .. } = &replied;
                    self.admission.note_replies(*master, replies, positions, tallies);
                    if self.count(tallies, &calls, replied) {
                        end = Some(Instant::now() + limit);
                    }
                }
                () = sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => {
                    tallies.iter_mut().for_each(|tally| tally.close(limit));
                    end = None;
                }
                () = sleep_until(vote_end), if !vote_closed => {
                    tallies.iter_mut().for_each(|tally| tally.give_up(vote_limit));
                    vote_closed = true;
                }
            }
        }
        calls
    }

    /// Counts the replies of a master, and sends the second phase where it begins. Returns whether it did.
    fn count(self, tallies: &mut [Tally], calls: &Calls, replied: MasterReplies) -> bool {
        let nodes = self.nodes;
        let (master, second) = (replied.master, replied.second);
        let mut writes: Vec<(Vec<usize>, Vec<Request>)> = vec![Default::default(); nodes.len()];
        for (position, reply) in replied.positions.into_iter().zip(replied.replies) {
            let tally = &mut tallies[position];
            if let (Some(lease), Reply::Applied { .. }) = (tally.released(), &reply) {
                self.leftovers.released_at(lease, master);
            }
            let Some((to, request)) = tally.count(master, second, reply) else {
                continue;
            };
            for (master, _) in among(nodes, to) {
                writes[master].0.push(position);
                writes[master].1.push(request.clone());
            }
        }
        let mut written = false;
        for (master, (positions, requests)) in writes.into_iter().enumerate() {
            if !positions.is_empty() {
                calls.push(call(&nodes[master], master, true, positions, requests));
                written = true;
            }
        }
        written
    }
}

fn call(
    node: &Arc<Master>,
    master: usize,
    second: bool,
    positions: Vec<usize>,
    requests: Vec<Request>,
) -> BoxFuture<'static, MasterReplies> {
    let applied = node.apply(requests);
    Box::pin(async move {
        MasterReplies {
            master,
            second,
            positions,
            replies: applied.await,
        }
    })
}

fn among(nodes: &[Arc<Master>], some: Masters) -> impl Iterator<Item = (usize, &Arc<Master>)> {
    let nodes = nodes.iter().enumerate();
    nodes.filter(move |(master, _)| some.contains(*master))
}

/// Finishes calls in the background. Each is polled once first, so that it is sent before all later calls.
fn finish_in_background(mut calls: Calls) {
    if calls.is_empty() {
        return;
    }
    let _ = calls.next().now_or_never();
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move { while calls.next().await.is_some() {} });
    }
}

fn phase_limit(nodes: &[Arc<Master>], batch: &[Request]) -> Duration {
    let ttls = batch.iter().filter_map(|request| match request.op {
        Op::Acquire { ttl, .. } | Op::Renew { ttl, .. } => Some(ttl.as_duration()),
        _ => None,
    });
    let Some(ttl) = ttls.min() else {
        return PHASE_MAX;
    };
    (ttl / PHASE_DIVISOR)
        .clamp(PHASE_MIN, PHASE_MAX)
        .max(usual(nodes).min(ttl / 10))
}

/// A multiple of the slowest average round trip.
fn usual(nodes: &[Arc<Master>]) -> Duration {
    let usual = nodes.iter().map(|node| node.round_trip()).max();
    usual.unwrap_or_default() * ROUND_TRIPS
}
