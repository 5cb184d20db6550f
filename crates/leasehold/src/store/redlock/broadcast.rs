//! Takes a batch to all masters at once, and waits until a majority has decided each request.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold_core::Op;
use leasehold_core::quorum::{Masters, Size};
use tokio::time::{Instant, sleep_until};

use super::admission::Admission;
use super::leftovers::Leftovers;
use super::master::Master;
use super::tally::Tally;
use crate::store::api::{BoxFuture, Key, Reply, Request};

/// How long the masters have for one phase of an acquisition: this part of the ttl, within these
/// bounds. One that is usually slower has this many times as long as usual, but no more than a tenth of
/// the ttl.
const PATIENCE_DIVISOR: u32 = 200;
const PATIENCE_MIN: Duration = Duration::from_millis(5);
const PATIENCE_MAX: Duration = Duration::from_millis(250);
const USUAL_TIMES: u32 = 4;

/// How long a majority has for what a holder or an operator does, at least. An answer counts then however
/// late it comes, but others wait behind the question.
const VOTES_MIN: Duration = Duration::from_secs(1);

/// What a master answered: which one, in which phase, to which requests.
struct Answered {
    master: usize,
    second: bool,
    places: Vec<usize>,
    replies: Vec<Reply>,
}

type Calls = FuturesUnordered<BoxFuture<'static, Answered>>;

/// The masters of a store, and what is known of them.
#[derive(Clone, Copy)]
pub(super) struct Poll<'a> {
    pub(super) nodes: &'a [Arc<Master>],
    pub(super) size: Size,
    pub(super) admission: &'a Arc<Admission>,
    pub(super) leftovers: &'a Leftovers,
}

impl Poll<'_> {
    /// Answers each request, with its key. What is still under way then goes on in the background.
    pub(super) async fn hold(self, batch: Vec<Request>) -> Vec<(Key, Reply)> {
        if batch.is_empty() {
            return Vec::new();
        }
        let patience = patience(self.nodes, &batch);
        let tallies = batch.into_iter();
        let tallies = tallies.map(|request| Tally::new(self.size, request, self.leftovers));
        let mut tallies: Vec<_> = tallies.collect();
        let calls = self.decide(&mut tallies, patience).await;
        for tally in &tallies {
            if let Some((gone, request)) = tally.refill() {
                for (master, node) in among(self.nodes, gone) {
                    calls.push(call(node, master, true, Vec::new(), vec![request.clone()]));
                }
            }
            tally.note(self.leftovers);
        }
        go_on(calls).await;
        let replies = tallies.into_iter();
        replies
            .map(|tally| tally.into_reply(|namespace| self.admission.kept_out(namespace)))
            .collect()
    }

    /// Sends the requests and counts the answers until each request is decided. Answers the calls that
    /// are still under way.
    async fn decide(self, tallies: &mut [Tally], patience: Duration) -> Calls {
        let mut calls = Calls::new();
        for (master, node) in self.nodes.iter().enumerate() {
            let asked = tallies.iter().enumerate();
            let asked = asked.filter_map(|(place, tally)| Some((place, tally.request_to(master)?)));
            let (places, requests): (Vec<_>, Vec<_>) = asked.unzip();
            if !places.is_empty() {
                calls.push(call(node, master, false, places, requests));
            }
        }
        let mut end = Some(Instant::now() + patience);
        let votes_patience = patience.max(usual(self.nodes)).max(VOTES_MIN);
        let votes_end = Instant::now() + votes_patience;
        let mut votes_over = false;
        while !tallies.iter().all(Tally::is_done) {
            tokio::select! {
                biased;
                answered = calls.next() => {
                    let Some(answered) = answered else { break };
                    let Answered { master, replies, places, .. } = &answered;
                    self.admission.note_replies(*master, replies, places, tallies);
                    if self.count(tallies, &calls, answered) {
                        end = Some(Instant::now() + patience);
                    }
                }
                () = sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => {
                    tallies.iter_mut().for_each(|tally| tally.close(patience));
                    end = None;
                }
                () = sleep_until(votes_end), if !votes_over => {
                    tallies.iter_mut().for_each(|tally| tally.give_up(votes_patience));
                    votes_over = true;
                }
            }
        }
        calls
    }

    /// Counts what a master answered, and sends what follows. Answers whether there was anything.
    fn count(self, tallies: &mut [Tally], calls: &Calls, answered: Answered) -> bool {
        let nodes = self.nodes;
        let Answered {
            master,
            second,
            places,
            replies,
        } = answered;
        let mut writes: Vec<(Vec<usize>, Vec<Request>)> = vec![Default::default(); nodes.len()];
        for (place, reply) in places.into_iter().zip(replies) {
            let tally = &mut tallies[place];
            if let (Some(lease), Reply::Applied { .. }) = (tally.released(), &reply) {
                self.leftovers.released_at(lease, master);
            }
            let Some((to, request)) = tally.hear(master, second, reply) else {
                continue;
            };
            for (master, _) in among(nodes, to) {
                writes[master].0.push(place);
                writes[master].1.push(request.clone());
            }
        }
        let mut written = false;
        for (master, (places, requests)) in writes.into_iter().enumerate() {
            if !places.is_empty() {
                calls.push(call(&nodes[master], master, true, places, requests));
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
    places: Vec<usize>,
    requests: Vec<Request>,
) -> BoxFuture<'static, Answered> {
    let asked = node.ask(requests);
    Box::pin(async move {
        Answered {
            master,
            second,
            places,
            replies: asked.await,
        }
    })
}

fn among(nodes: &[Arc<Master>], some: Masters) -> impl Iterator<Item = (usize, &Arc<Master>)> {
    let nodes = nodes.iter().enumerate();
    nodes.filter(move |(master, _)| some.contains(*master))
}

/// Leaves calls to the background. Each has been polled once, so that it was sent before anything that is
/// asked from now on.
async fn go_on(mut calls: Calls) {
    if calls.is_empty() {
        return;
    }
    let polled =
        std::future::poll_fn(|context| std::task::Poll::Ready(calls.poll_next_unpin(context)));
    let _ = polled.await;
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move { while calls.next().await.is_some() {} });
    }
}

fn patience(nodes: &[Arc<Master>], batch: &[Request]) -> Duration {
    let ttls = batch.iter().filter_map(|request| match request.op {
        Op::Acquire { ttl, .. } | Op::Renew { ttl, .. } => Some(ttl.as_duration()),
        _ => None,
    });
    let Some(ttl) = ttls.min() else {
        return PATIENCE_MAX;
    };
    (ttl / PATIENCE_DIVISOR)
        .clamp(PATIENCE_MIN, PATIENCE_MAX)
        .max(usual(nodes).min(ttl / 10))
}

fn usual(nodes: &[Arc<Master>]) -> Duration {
    let usual = nodes.iter().map(|node| node.round_trip()).max();
    usual.unwrap_or_default() * USUAL_TIMES
}
