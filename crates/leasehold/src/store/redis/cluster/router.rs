//! Routes calls to the nodes that have their slots, also while slots are migrated and nodes fail.
//!
//! A call that may have been applied is never repeated. A call to the wrong node, or to one that could not
//! serve it, was certainly not applied, and is repeated for a while.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tokio::time::{Instant, sleep};

use super::super::connection_manager;
use super::super::errors;
use super::super::session::Session;
use super::call::Call;
use super::node::{ClusterNode, NodeAddr};
use super::send;
use super::slot_map::Redirect;
use super::topology::Topology;
use crate::Error;

/// The first retry interval of a call that a node could not serve.
const INTERVAL_MIN: Duration = Duration::from_millis(2);

/// The longest retry interval.
const INTERVAL_MAX: Duration = Duration::from_millis(50);

/// How long a connection attempt may take before another node is asked whether the slots have a new owner.
const CONNECT_LIMIT: Duration = Duration::from_millis(100);

/// The number of redirects without a pause. Nodes that redirect to each other do not agree yet.
const HOPS_MAX: u32 = 3;

/// The result of a call.
#[derive(Debug)]
pub(super) enum CallResult {
    /// A node has replied, on this connection.
    Replied(Value, Arc<Session>),
    /// It was certainly not applied.
    NotApplied(Error),
    /// It may have been applied, or may still be.
    NoReply(Error),
}

/// The outcome of a call at one node.
enum Attempt {
    Done(CallResult),
    Redirected(Redirect, Value),
    /// The slot has another owner now, or none.
    Elsewhere,
}

/// Makes calls within the response timeout. The results are in another order, and some calls are split.
pub(super) async fn route(topology: &Arc<Topology>, calls: Vec<Call>) -> Vec<(Call, CallResult)> {
    let mut routing = Routing {
        topology,
        start: Instant::now(),
        results: Vec::with_capacity(calls.len()),
        open: calls,
        interval: INTERVAL_MIN,
        rounds: 0,
    };
    while !routing.open.is_empty() {
        routing.round().await;
    }
    routing.results
}

struct Routing<'a> {
    topology: &'a Arc<Topology>,
    start: Instant,
    open: Vec<Call>,
    results: Vec<(Call, CallResult)>,
    interval: Duration,
    rounds: u32,
}

/// What has to happen before the next round.
#[derive(Default)]
struct Preparation {
    /// Refresh the slot map, from this node if it is given.
    refresh: Option<Option<NodeAddr>>,
    pause: bool,
}

impl Routing<'_> {
    /// Sends the open calls to their nodes, and handles the results.
    async fn round(&mut self) {
        let mut next = Preparation::default();
        let mut groups: Vec<(Arc<ClusterNode>, Vec<Call>)> = Vec::new();
        let map = self.topology.map();
        for call in std::mem::take(&mut self.open) {
            let Some(node) = call.asking.as_ref().or_else(|| map.owner(call.slot)) else {
                next.refresh = Some(None);
                next.pause = true;
                self.retry(vec![call], errors::no_node_for_slot);
                continue;
            };
            match groups.iter_mut().find(|(to, _)| Arc::ptr_eq(to, node)) {
                Some((_, calls)) => calls.push(call),
                None => groups.push((Arc::clone(node), vec![call])),
            }
        }
        drop(map);
        let (topology, deadline) = (self.topology, self.deadline());
        let attempts = groups.into_iter().map(|(node, calls)| async move {
            (attempt(topology, &node, calls, deadline).await, node)
        });
        for (attempts, node) in join_all(attempts).await {
            for (call, attempt) in attempts {
                self.handle(call, attempt, &node, &mut next).await;
            }
        }
        if self.open.is_empty() {
            return;
        }
        self.rounds += 1;
        if let Some(addr) = next.refresh {
            self.topology.refresh(addr.as_ref()).await;
        }
        if next.pause || self.rounds > HOPS_MAX {
            sleep(self.interval).await;
            self.interval = (self.interval * 2).min(INTERVAL_MAX);
        }
    }

    async fn handle(
        &mut self,
        call: Call,
        attempt: Attempt,
        node: &ClusterNode,
        next: &mut Preparation,
    ) {
        let call = Call {
            asking: None,
            ..call
        };
        match attempt {
            Attempt::Done(end) => self.results.push((call, end)),
            Attempt::Elsewhere => self.retry(vec![call], errors::nodes_disagree),
            Attempt::Redirected(Redirect::Moved(addr), _) => {
                self.topology.moved(call.slot, &addr);
                next.refresh = Some(Some(addr));
                self.retry(vec![call], errors::nodes_disagree);
            }
            // A note has a key of its own, which may still be at this node.
            Attempt::Redirected(Redirect::Ask(_), _) if call.has_notes() => {
                self.retry_in_migration(call, next);
            }
            Attempt::Redirected(Redirect::Ask(addr), _) => match self.topology.find(&addr).await {
                Ok(target) => self.retry(call.redirected_to(&target), errors::slot_is_moving),
                Err(error) => {
                    next.pause = true;
                    self.retry(vec![call], || error);
                }
            },
            Attempt::Redirected(Redirect::Both, _) => {
                self.retry_in_migration(call, next);
            }
            Attempt::Redirected(Redirect::Down, reply) => {
                node.set_doubtful(true);
                next.refresh = Some(None);
                next.pause = true;
                self.retry(vec![call], || errors::cluster_down(&reply));
            }
        }
    }

    /// Makes a call again whose keys may be at two nodes. Those of a single name may be at one.
    fn retry_in_migration(&mut self, call: Call, next: &mut Preparation) {
        let many = call.has_many_names();
        next.pause |= !many;
        let calls = if many { call.by_name() } else { vec![call] };
        self.retry(calls, errors::slot_is_moving);
    }

    /// Makes calls again, if there is time left.
    fn retry(&mut self, calls: Vec<Call>, why: impl FnOnce() -> Error) {
        let timeout = self.topology.options().response_timeout;
        if self.start.elapsed() < timeout / 2 {
            self.open.extend(calls);
            return;
        }
        let error = why();
        let result = |call| (call, CallResult::NotApplied(error.clone()));
        self.results.extend(calls.into_iter().map(result));
    }

    /// The deadline of a reply: the last call has at least half of the timeout.
    fn deadline(&self) -> Instant {
        let timeout = self.topology.options().response_timeout;
        let left = timeout.saturating_sub(self.start.elapsed());
        connection_manager::deadline(left.max(timeout / 2))
    }
}

/// Makes the calls of one node. The outcomes are in another order, and some calls are split.
async fn attempt(
    topology: &Arc<Topology>,
    node: &ClusterNode,
    calls: Vec<Call>,
    deadline: Instant,
) -> Vec<(Call, Attempt)> {
    let notifications = node.manager.notifications();
    for call in &calls {
        notifications.retry_denied(&call.requests);
    }
    let all = |calls: Vec<Call>, attempt: &dyn Fn() -> Attempt| -> Vec<_> {
        let calls = calls.into_iter();
        calls.map(|call| (call, attempt())).collect()
    };
    let not_applied = |error: Error| Attempt::Done(CallResult::NotApplied(error));
    let session = match reach(topology, node, &calls[0]).await {
        Ok(session) => session,
        Err(None) => return all(calls, &|| Attempt::Elsewhere),
        Err(Some(error)) => return all(calls, &|| not_applied(error.clone())),
    };
    // A client that cannot be notified acquires nothing.
    let (mut attempts, mut allowed) = (Vec::new(), Vec::new());
    for call in calls {
        let (call, denied) = call.without_denied(|request| notifications.denied(request));
        allowed.extend(call);
        let denied = denied.into_iter();
        attempts.extend(denied.map(|(call, error)| (call, not_applied(error))));
    }
    if allowed.is_empty() {
        return attempts;
    }
    let late = Instant::now() + topology.options().response_timeout / 2;
    let sent = send::send(node, &session, &allowed);
    match node
        .manager
        .await_reply(&session, deadline.max(late), sent)
        .await
    {
        Err(error) => {
            node.set_doubtful(true);
            let no_reply = || Attempt::Done(CallResult::NoReply(error.clone()));
            attempts.extend(all(allowed, &no_reply));
        }
        Ok(replies) => {
            node.set_doubtful(false);
            send::continue_all(node, &allowed, &replies).await;
            for (call, reply) in allowed.into_iter().zip(replies) {
                let redirect = match &reply {
                    Value::ServerError(error) => Redirect::parse(error, &node.addr),
                    _ => None,
                };
                let attempt = match redirect {
                    Some(redirect) => Attempt::Redirected(redirect, reply),
                    None => Attempt::Done(CallResult::Replied(reply, Arc::clone(&session))),
                };
                attempts.push((call, attempt));
            }
        }
    }
    attempts
}

/// A connection to a node. The error `None` means that the slot has another owner by now.
///
/// While the attempt takes long, the slot map is refreshed, as another node may have replaced this one.
/// Nothing was sent yet, so the call can go there.
async fn reach(
    topology: &Arc<Topology>,
    node: &ClusterNode,
    call: &Call,
) -> Result<Arc<Session>, Option<Error>> {
    let is_elsewhere = || {
        let map = topology.map();
        let owner = map.owner(call.slot);
        call.asking.is_none() && owner.is_none_or(|owner| !std::ptr::eq(&raw const **owner, node))
    };
    let mut settled = std::pin::pin!(node.manager.settled(Duration::ZERO));
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
                    topology.refresh(None).await;
                    return Err((!is_elsewhere()).then_some(error));
                }
            },
            () = sleep(limit) => {
                limit = CONNECT_LIMIT;
                topology.refresh(None).await;
                if is_elsewhere() {
                    return Err(None);
                }
            }
        }
    }
}
