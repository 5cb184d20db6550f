//! Sends a batch to all masters at once, and waits until a majority has decided each request.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use leasehold_core::quorum::{self, Masters};
use leasehold_core::{Acquire, Op};
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep_until};

use super::RedlockStore;
use super::master::Master;
use super::pending_request::PendingRequest;
use crate::store::api::{BoxFuture, Reply, Request};
use crate::store::redis::errors::is_not_admitted;

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

/// A request for some masters, and the position of its batch.
type Addressed = (usize, (Masters, Request));

type Calls = FuturesUnordered<BoxFuture<'static, MasterReplies>>;

impl RedlockStore {
    /// Sends a batch to all masters. Returns the reply to each request. Calls that are still in flight then continue in
    /// the background.
    pub(super) async fn broadcast(&self, batch: Vec<Request>) -> Vec<Reply> {
        if batch.is_empty() {
            return Vec::new();
        }
        let renewals = self.leases.begin_renewals(&batch);
        let limit = phase_limit(&self.nodes, &batch);
        let clocks = self.nodes.iter().filter_map(|node| node.time());
        let proposal = quorum::proposal(clocks, slowest(&self.nodes));
        let pending = batch.into_iter();
        let pending =
            pending.map(|request| PendingRequest::new(self.size, request, proposal, &self.leases));
        let mut pending: Vec<_> = pending.collect();
        let calls = self.decide(&mut pending, limit).await;
        for (position, request) in pending.iter().enumerate() {
            if let Some((lease, restoring)) = request.restoration(proposal) {
                renewals.restore(lease, || {
                    self.send_second(&calls, &[(position, restoring)]);
                });
            }
            request.note_leftover(&self.leases);
        }
        finish_in_background(calls);
        let replies = pending.iter();
        replies
            .map(|request| request.reply(|namespace| self.admission.kept_out(namespace)))
            .collect()
    }

    /// Sends the requests and counts the replies until each request is decided. Returns the calls that are
    /// still in flight.
    async fn decide(&self, pending: &mut [PendingRequest], limit: Duration) -> Calls {
        let mut calls = Calls::new();
        for (master, node) in self.nodes.iter().enumerate() {
            let open = pending.iter().enumerate();
            let open = open.filter_map(|(at, request)| Some((at, request.for_master(master)?)));
            calls.extend(call(node, master, false, open));
        }
        let begun = Instant::now();
        let mut phase_end = Some(begun + limit);
        // The end of the wait for masters that may still take a proposal.
        let mut wait_end = None;
        let vote_limit = limit.max(usual(&self.nodes)).max(VOTE_MIN);
        let mut vote_end = Some(begun + vote_limit);
        while !pending.iter().all(|request| request.tally.is_done()) {
            let next_end = [phase_end, wait_end, vote_end].into_iter().flatten().min();
            let mut second_phases = Vec::new();
            tokio::select! {
                biased;
                replied = calls.next() => {
                    let Some(replied) = replied else { break };
                    second_phases = self.count(pending, replied);
                    if wait_end.is_none() && pending.iter().any(|it| it.tally.awaits_proposal()) {
                        // As long again as the majority took: about as long as the second phase takes.
                        let again = Instant::now() + begun.elapsed();
                        wait_end = phase_end.map(|end| end.min(again));
                    }
                }
                () = sleep_until(next_end.unwrap_or(begun)), if next_end.is_some() => {
                    let now = Instant::now();
                    let is_due = |end: &mut Option<Instant>| end.take_if(|end| *end <= now).is_some();
                    if is_due(&mut wait_end) {
                        let waiting = pending.iter_mut().enumerate();
                        let begun = waiting.filter_map(|(at, it)| Some((at, it.end_proposal_wait()?)));
                        second_phases = begun.collect();
                    } else if is_due(&mut phase_end) {
                        pending.iter_mut().for_each(|request| request.close(limit));
                    } else if is_due(&mut vote_end) {
                        pending.iter_mut().for_each(|request| request.give_up(vote_limit));
                    }
                }
            }
            if !second_phases.is_empty() {
                self.send_second(&calls, &second_phases);
                phase_end = Some(Instant::now() + limit);
            }
        }
        calls
    }

    /// Counts the replies of a master. Returns the second phases that begin.
    fn count(&self, pending: &mut [PendingRequest], replied: MasterReplies) -> Vec<Addressed> {
        let MasterReplies { master, second, .. } = replied;
        let mut second_phases = Vec::new();
        for (position, reply) in replied.positions.into_iter().zip(replied.replies) {
            let request = &mut pending[position];
            if let Reply::Rejected(error) = &reply
                && is_not_admitted(error)
            {
                self.admission.note_refusal(master, request.namespace());
            }
            let begun = request.count(master, second, reply, &self.leases);
            second_phases.extend(begun.map(|begun| (position, begun)));
        }
        second_phases
    }

    /// Sends requests of a second phase, or such that restore a lease.
    fn send_second(&self, calls: &Calls, requests: &[Addressed]) {
        for (master, node) in self.nodes.iter().enumerate() {
            let to_this = requests.iter();
            let to_this = to_this.filter(|(_, (to, _))| to.contains(master));
            let to_this = to_this.map(|(position, (_, request))| (*position, request.clone()));
            if let Some(call) = call(node, master, true, to_this) {
                calls.push(call);
            }
        }
    }
}

/// A call of requests, with their positions. `None`: there are none.
fn call(
    node: &Arc<Master>,
    master: usize,
    second: bool,
    requests: impl Iterator<Item = (usize, Request)>,
) -> Option<BoxFuture<'static, MasterReplies>> {
    let (positions, requests): (Vec<_>, Vec<_>) = requests.unzip();
    if positions.is_empty() {
        return None;
    }
    // A release of a lease may overtake the acquisition that restores it.
    let applied = node.apply(requests, !second);
    Some(Box::pin(async move {
        MasterReplies {
            master,
            second,
            positions,
            replies: applied.await,
        }
    }))
}

/// Finishes calls in the background. Each is polled once first, so that it is sent before all later calls.
fn finish_in_background(mut calls: Calls) {
    if calls.is_empty() {
        return;
    }
    while unconstrained(calls.next())
        .now_or_never()
        .flatten()
        .is_some()
    {}
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move { while calls.next().await.is_some() {} });
    }
}

fn phase_limit(nodes: &[Arc<Master>], batch: &[Request]) -> Duration {
    let ttls = batch.iter().filter_map(|request| match &request.op {
        Op::Acquire(Acquire { ttl, .. })
        | Op::Renew {
            ttl, count: None, ..
        } => Some(ttl.as_duration()),
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
    slowest(nodes) * ROUND_TRIPS
}

/// The slowest average round trip.
fn slowest(nodes: &[Arc<Master>]) -> Duration {
    let slowest = nodes.iter().map(|node| node.round_trip()).max();
    slowest.unwrap_or_default()
}
