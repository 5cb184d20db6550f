//! Sends a batch to all masters at once, and waits until a majority has decided each request.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use leasehold_core::quorum::{Masters, Size};
use leasehold_core::{Acquire, Op};
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep_until};

use super::admission::Admission;
use super::clock;
use super::leftovers::Leftovers;
use super::master::Master;
use super::restorations::Restorations;
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

/// A second phase that begins.
struct SecondPhase {
    /// The position of its tally.
    position: usize,
    masters: Masters,
    request: Request,
}

impl SecondPhase {
    fn new(position: usize, (masters, request): (Masters, Request)) -> Self {
        Self {
            position,
            masters,
            request,
        }
    }
}

type Calls = FuturesUnordered<BoxFuture<'static, MasterReplies>>;

/// Sends batches to the masters of a store.
#[derive(Clone, Copy)]
pub(super) struct Broadcast<'a> {
    pub(super) nodes: &'a [Arc<Master>],
    pub(super) size: Size,
    pub(super) admission: &'a Arc<Admission>,
    pub(super) leftovers: &'a Leftovers,
    pub(super) restorations: &'a Restorations,
}

impl Broadcast<'_> {
    /// The reply to each request, with its key. Calls that are still in flight then continue in the background.
    pub(super) async fn apply(self, batch: Vec<Request>) -> Vec<(Key, Reply)> {
        if batch.is_empty() {
            return Vec::new();
        }
        let renewals = self.restorations.begin(&batch);
        let limit = phase_limit(self.nodes, &batch);
        let clocks = self.nodes.iter().map(|node| &node.clock);
        let proposal = clock::proposal(clocks, slowest(self.nodes));
        let tallies = batch.into_iter();
        let tallies =
            tallies.map(|request| Tally::new(self.size, request, proposal, self.leftovers));
        let mut tallies: Vec<_> = tallies.collect();
        let calls = self.decide(&mut tallies, limit).await;
        for tally in &tallies {
            if let Some(restoration) = tally.restoration(proposal) {
                renewals.restore(restoration.lease, || {
                    for (master, node) in among(self.nodes, restoration.masters) {
                        let requests = vec![restoration.request.clone()];
                        calls.push(call(node, master, true, Vec::new(), requests));
                    }
                });
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
        let begun = Instant::now();
        let mut phase_end = Some(begun + limit);
        // The end of the wait for masters that may still take a proposal.
        let mut wait_end = None;
        let vote_limit = limit.max(usual(self.nodes)).max(VOTE_MIN);
        let mut vote_end = Some(begun + vote_limit);
        while !tallies.iter().all(Tally::is_done) {
            let next_end = [phase_end, wait_end, vote_end].into_iter().flatten().min();
            let mut second_phases = Vec::new();
            tokio::select! {
                biased;
                replied = calls.next() => {
                    let Some(replied) = replied else { break };
                    let MasterReplies { master, replies, positions, .. } = &replied;
                    self.admission.note_replies(*master, replies, positions, tallies);
                    second_phases = count(tallies, replied, self.leftovers);
                    if wait_end.is_none() && tallies.iter().any(Tally::awaits_proposal) {
                        // As long again as the majority took: about as long as the second phase takes.
                        let again = Instant::now() + begun.elapsed();
                        wait_end = phase_end.map(|end| end.min(again));
                    }
                }
                () = sleep_until(next_end.unwrap_or(begun)), if next_end.is_some() => {
                    let now = Instant::now();
                    let is_due = |end: &mut Option<Instant>| end.take_if(|end| *end <= now).is_some();
                    if is_due(&mut wait_end) {
                        second_phases = end_proposal_waits(tallies);
                    } else if is_due(&mut phase_end) {
                        tallies.iter_mut().for_each(|tally| tally.close(limit));
                    } else if is_due(&mut vote_end) {
                        tallies.iter_mut().for_each(|tally| tally.give_up(vote_limit));
                    }
                }
            }
            if !second_phases.is_empty() {
                self.send_second_phases(&second_phases, &calls);
                phase_end = Some(Instant::now() + limit);
            }
        }
        calls
    }

    fn send_second_phases(self, second_phases: &[SecondPhase], calls: &Calls) {
        for (master, node) in self.nodes.iter().enumerate() {
            let to_this = second_phases.iter();
            let to_this = to_this.filter(|phase| phase.masters.contains(master));
            let to_this = to_this.map(|phase| (phase.position, phase.request.clone()));
            let (positions, requests): (Vec<_>, Vec<_>) = to_this.unzip();
            if !positions.is_empty() {
                calls.push(call(node, master, true, positions, requests));
            }
        }
    }
}

/// Counts the replies of a master. Returns the second phases that begin.
fn count(tallies: &mut [Tally], replied: MasterReplies, leftovers: &Leftovers) -> Vec<SecondPhase> {
    let (master, second) = (replied.master, replied.second);
    let mut second_phases = Vec::new();
    for (position, reply) in replied.positions.into_iter().zip(replied.replies) {
        let tally = &mut tallies[position];
        if let (Some(lease), Reply::Applied { .. }) = (tally.released(), &reply) {
            leftovers.released_at(lease, master);
        }
        let second_phase = tally.count(master, second, reply);
        second_phases.extend(second_phase.map(|begun| SecondPhase::new(position, begun)));
    }
    second_phases
}

/// Ends the waits for masters that may still take a proposal. Returns the second phases that begin.
fn end_proposal_waits(tallies: &mut [Tally]) -> Vec<SecondPhase> {
    let tallies = tallies.iter_mut().enumerate();
    let second_phases = tallies.filter_map(|(position, tally)| {
        let second_phase = tally.end_proposal_wait()?;
        Some(SecondPhase::new(position, second_phase))
    });
    second_phases.collect()
}

fn call(
    node: &Arc<Master>,
    master: usize,
    second: bool,
    positions: Vec<usize>,
    requests: Vec<Request>,
) -> BoxFuture<'static, MasterReplies> {
    // A release of a lease may overtake the acquisition that restores it.
    let applied = node.apply(requests, !second);
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
