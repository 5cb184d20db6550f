//! Routes calls to the nodes that have their slots, also while slots are migrated and nodes fail.
//!
//! A call that may have been applied is never repeated. A call to the wrong node, or to one that could not
//! serve it, was certainly not applied, and is repeated for a while.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use super::call::{Call, CallResult, CallResults};
use super::cluster::Cluster;
use super::node::ClusterNode;
use super::slot_map::Redirect;
use crate::Error;
use crate::store::redis::address::HostPort;
use crate::store::redis::errors;
use crate::store::redis::link::connection_manager;
use crate::store::redis::link::session::Session;

/// The first retry interval of a call that a node could not serve.
const INTERVAL_MIN: Duration = Duration::from_millis(2);

/// The longest retry interval.
const INTERVAL_MAX: Duration = Duration::from_millis(50);

/// How long a connection attempt may take before another node is asked whether the slots have a new owner.
const CONNECT_LIMIT: Duration = Duration::from_millis(100);

/// The number of redirects without a pause. Nodes that redirect to each other do not agree yet.
const HOPS_MAX: u32 = 3;

/// The outcome of a call at one node.
type Attempt = Result<CallResult, Redirect>;

/// Makes calls within the response timeout. The results are in another order, and some calls are split.
pub(crate) async fn route(cluster: &Arc<Cluster>, calls: Vec<Call>) -> CallResults {
    let mut routing = Routing {
        cluster,
        start: Instant::now(),
        results: Vec::with_capacity(calls.len()),
        open: calls,
        asking: Vec::new(),
        refresh: None,
        pause: false,
        interval: INTERVAL_MIN,
        rounds: 0,
    };
    while routing.is_open() {
        routing.round().await;
    }
    routing.results
}

struct Routing<'a> {
    cluster: &'a Arc<Cluster>,
    start: Instant,
    open: Vec<Call>,
    /// Those for the node to which their slot is being migrated.
    asking: Vec<(Arc<ClusterNode>, Call)>,
    results: Vec<(Call, CallResult)>,
    /// Whether the slot map is refreshed before the next round, from this node if it is given.
    refresh: Option<Option<HostPort>>,
    /// Whether there is a pause before the next round.
    pause: bool,
    interval: Duration,
    rounds: u32,
}

impl Routing<'_> {
    /// Sends the open calls to their nodes, and handles the results.
    async fn round(&mut self) {
        let mut groups: Vec<(Arc<ClusterNode>, Vec<Call>)> = Vec::new();
        let mut addressed = std::mem::take(&mut self.asking);
        let map = self.cluster.map();
        for call in std::mem::take(&mut self.open) {
            match map.owner(call.slot) {
                Some(node) => addressed.push((Arc::clone(node), call)),
                None => {
                    self.refresh = Some(None);
                    self.pause = true;
                    self.retry(vec![call], errors::no_node_for_slot);
                }
            }
        }
        drop(map);
        for (node, call) in addressed {
            match groups.iter_mut().find(|(to, _)| Arc::ptr_eq(to, &node)) {
                Some((_, calls)) => calls.push(call),
                None => groups.push((node, vec![call])),
            }
        }
        let (cluster, deadline) = (self.cluster, self.deadline());
        let attempts = groups.into_iter().map(|(node, calls)| async move {
            (attempt(cluster, &node, calls, deadline).await, node)
        });
        for (attempts, node) in join_all(attempts).await {
            for (call, attempt) in attempts {
                self.handle(call, attempt, &node).await;
            }
        }
        if !self.is_open() {
            return;
        }
        self.rounds += 1;
        if let Some(addr) = self.refresh.take() {
            self.cluster.refresh(addr.as_ref()).await;
        }
        if std::mem::take(&mut self.pause) || self.rounds > HOPS_MAX {
            sleep(self.interval).await;
            self.interval = (self.interval * 2).min(INTERVAL_MAX);
        }
    }

    async fn handle(&mut self, mut call: Call, attempt: Attempt, node: &ClusterNode) {
        call.asking = false;
        match attempt {
            Ok(end) => self.results.push((call, end)),
            Err(Redirect::Elsewhere) => self.retry(vec![call], errors::nodes_disagree),
            Err(Redirect::Moved(addr)) => {
                self.cluster.moved(call.slot, &addr);
                self.refresh = Some(Some(addr));
                self.retry(vec![call], errors::nodes_disagree);
            }
            // A note has a key of its own, which may still be at this node.
            Err(Redirect::Ask(_)) if call.has_notes() => {
                self.retry_in_migration(call);
            }
            Err(Redirect::Ask(addr)) => match self.cluster.find(&addr).await {
                Ok(target) if self.has_time() => {
                    let calls = call.redirected().into_iter();
                    let asking = calls.map(|call| (Arc::clone(&target), call));
                    self.asking.extend(asking);
                }
                Ok(_) => self.retry(vec![call], errors::slot_is_moving),
                Err(error) => {
                    self.pause = true;
                    self.retry(vec![call], || error);
                }
            },
            Err(Redirect::Both) => self.retry_in_migration(call),
            Err(Redirect::Down(words)) => {
                node.set_doubtful(true);
                self.refresh = Some(None);
                self.pause = true;
                self.retry(vec![call], || errors::cluster_down(&words));
            }
        }
    }

    /// Makes a call again whose keys may be at two nodes. Those of a single name may be at one.
    fn retry_in_migration(&mut self, call: Call) {
        let calls = call.by_name();
        self.pause |= calls.len() == 1;
        self.retry(calls, errors::slot_is_moving);
    }

    fn is_open(&self) -> bool {
        !self.open.is_empty() || !self.asking.is_empty()
    }

    fn has_time(&self) -> bool {
        self.start.elapsed() < self.cluster.options.response_timeout / 2
    }

    /// Makes calls again, if there is time left.
    fn retry(&mut self, calls: Vec<Call>, why: impl FnOnce() -> Error) {
        if self.has_time() {
            self.open.extend(calls);
            return;
        }
        let error = why();
        let result = |call| (call, CallResult::NotApplied(error.clone()));
        self.results.extend(calls.into_iter().map(result));
    }

    /// The deadline of a reply: the last call has at least half of the timeout.
    fn deadline(&self) -> Instant {
        let timeout = self.cluster.options.response_timeout;
        let left = timeout.saturating_sub(self.start.elapsed());
        connection_manager::deadline(left.max(timeout / 2))
    }
}

/// Makes the calls of one node. The outcomes are in another order, and some calls are split.
async fn attempt(
    cluster: &Arc<Cluster>,
    node: &ClusterNode,
    calls: Vec<Call>,
    deadline: Instant,
) -> Vec<(Call, Attempt)> {
    let server = &node.server;
    server.retry_denied(&calls);
    let session = match reach(cluster, node, &calls).await {
        Ok(session) => session,
        Err(error) => {
            let attempt = || match &error {
                Some(error) => Ok(CallResult::NotApplied(error.clone())),
                None => Err(Redirect::Elsewhere),
            };
            return calls.into_iter().map(|call| (call, attempt())).collect();
        }
    };
    let late = Instant::now() + cluster.options.response_timeout / 2;
    let results = server
        .deliver(&session, deadline.max(late), calls, None)
        .await;
    let results = results.into_iter().map(|(call, result)| {
        let redirect = match &result {
            CallResult::Replied(reply, _) => {
                node.set_doubtful(false);
                Redirect::parse(reply, &node.addr)
            }
            CallResult::NoReply(_) => {
                node.set_doubtful(true);
                None
            }
            CallResult::NotApplied(_) => None,
        };
        (call, redirect.map_or(Ok(result), Err))
    });
    let mut attempts: Vec<_> = results.collect();
    let deadline = connection_manager::deadline(cluster.options.response_timeout / 2);
    check_asked(node, &session, deadline, &mut attempts).await;
    attempts
}

/// Replaces a [`Redirect::Ask`] by [`Redirect::Both`] if a key of the call is still at this node.
///
/// Before Redis 7.0.3, a node redirects a call if *one* of its keys is missing. Keys only move away from it: what is
/// missing now stays missing.
async fn check_asked(
    node: &ClusterNode,
    session: &Arc<Session>,
    deadline: Instant,
    attempts: &mut [(Call, Attempt)],
) {
    let asked = attempts.iter().enumerate();
    let asked = asked.filter(|(_, (_, attempt))| matches!(attempt, Err(Redirect::Ask(_))));
    let probes = asked
        .flat_map(|(nth, (call, _))| call.probes(nth))
        .collect();
    for (probe, result) in node.server.deliver(session, deadline, probes, None).await {
        let redirect = match &result {
            CallResult::Replied(reply, _) => Redirect::parse(reply, &node.addr),
            CallResult::NotApplied(_) | CallResult::NoReply(_) => None,
        };
        if !matches!(redirect, Some(Redirect::Ask(_))) {
            for nth in probe.positions {
                attempts[nth].1 = Err(Redirect::Both);
            }
        }
    }
}

/// A connection to a node. The error `None` means that the slot has another owner by now.
///
/// While the attempt takes long, the slot map is refreshed, as another node may have replaced this one.
/// Nothing was sent yet, so the call can go there.
async fn reach(
    cluster: &Arc<Cluster>,
    node: &ClusterNode,
    calls: &[Call],
) -> Result<Arc<Session>, Option<Error>> {
    let call = &calls[0];
    let is_elsewhere = || {
        let map = cluster.map();
        let owner = map.owner(call.slot);
        !call.asking && owner.is_none_or(|owner| !std::ptr::eq(&raw const **owner, node))
    };
    let is_settled = calls.iter().any(Call::is_settled);
    let mut settled = std::pin::pin!(node.server.manager.session(Duration::ZERO, is_settled));
    let mut limit = match node.is_doubtful() {
        true => Duration::ZERO,
        false => CONNECT_LIMIT,
    };
    loop {
        tokio::select! {
            biased;
            settled = &mut settled => match settled {
                Ok((session, _)) => return Ok(session),
                Err(error) => {
                    node.set_doubtful(true);
                    cluster.refresh(None).await;
                    return Err((!is_elsewhere()).then_some(error));
                }
            },
            () = sleep(limit) => {
                limit = CONNECT_LIMIT;
                cluster.refresh(None).await;
                if is_elsewhere() {
                    return Err(None);
                }
            }
        }
    }
}
