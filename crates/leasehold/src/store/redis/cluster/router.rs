//! The way of calls to the nodes that have their slots, also while slots move and nodes fail.
//!
//! Nothing is sent twice that may have been applied. A call that was sent to the wrong node, or to one
//! that could not serve it, certainly was not, and is sent again, for a while.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tokio::time::{Instant, sleep};

use super::super::connection_manager::ConnectionManager;
use super::super::errors;
use super::super::session::Session;
use super::call::Call;
use super::node::ClusterNode;
use super::node_addr::NodeAddr;
use super::slot_map::Redirect;
use super::topology::Topology;
use crate::Error;

/// The pause before a call is sent again to a node that could not serve it, at first.
const PAUSE_MIN: Duration = Duration::from_millis(2);

/// The longest such pause.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// How long a connection may take to come about before another node is asked whether its slots have
/// found another owner.
const DIAL_PATIENCE: Duration = Duration::from_millis(100);

/// How often calls are sent on without a pause. Nodes that send each other's callers around have not
/// yet heard who is right.
const HOPS_MAX: u32 = 3;

/// What became of a call in the end.
#[derive(Debug)]
pub(super) enum CallResult {
    /// A node answered, on this connection.
    Answered(Value, Arc<Session>),
    /// It was certainly not applied.
    NotApplied(Error),
    /// It may have been applied, or may yet be.
    Unanswered(Error),
}

/// What became of a call at a node.
enum RouteError {
    CallResult(CallResult),
    Redirected(Redirect, Value),
    /// The slot has another owner now, or none.
    Elsewhere,
}

/// Makes calls within the response timeout, and gives what became of each. They come back in another order,
/// and some in parts.
pub(super) async fn make(topology: &Topology, calls: Vec<Call>) -> Vec<(Call, CallResult)> {
    let mut journey = Routing {
        topology,
        start: Instant::now(),
        ended: Vec::with_capacity(calls.len()),
        open: calls,
        pause: PAUSE_MIN,
        rounds: 0,
    };
    while !journey.open.is_empty() {
        journey.round().await;
    }
    journey.ended
}

struct Routing<'a> {
    topology: &'a Topology,
    start: Instant,
    open: Vec<Call>,
    ended: Vec<(Call, CallResult)>,
    pause: Duration,
    rounds: u32,
}

/// What a round left to be done before the next.
#[derive(Default)]
struct Left {
    /// Somebody who should know who has which slot. `None` inside: anybody.
    ask: Option<Option<NodeAddr>>,
    pause: bool,
}

impl Routing<'_> {
    /// Sends what is open to where it belongs, and takes in what comes back.
    async fn round(&mut self) {
        let mut left = Left::default();
        let mut groups: Vec<(Arc<ClusterNode>, Vec<Call>)> = Vec::new();
        let map = self.topology.map();
        for call in std::mem::take(&mut self.open) {
            let Some(node) = call.asked.as_ref().or_else(|| map.owner(call.slot)) else {
                left.ask = Some(None);
                left.pause = true;
                self.again(vec![call], errors::no_node_for_slot);
                continue;
            };
            match groups.iter_mut().find(|(to, _)| Arc::ptr_eq(to, node)) {
                Some((_, calls)) => calls.push(call),
                None => groups.push((Arc::clone(node), vec![call])),
            }
        }
        drop(map);
        let (topology, deadline) = (self.topology, self.deadline());
        let visits = groups.into_iter().map(|(node, calls)| async move {
            (visit(topology, &node, &calls, deadline).await, node, calls)
        });
        let stops = join_all(visits).await;
        for (stops, node, calls) in stops {
            for (call, stop) in calls.into_iter().zip(stops) {
                self.stopped(call, stop, &node, &mut left).await;
            }
        }
        if self.open.is_empty() {
            return;
        }
        self.rounds += 1;
        if let Some(addr) = left.ask {
            self.topology.refresh(addr.as_ref()).await;
        }
        if left.pause || self.rounds > HOPS_MAX {
            sleep(self.pause).await;
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
    }

    async fn stopped(&mut self, call: Call, stop: RouteError, node: &ClusterNode, left: &mut Left) {
        let asked = Call {
            asked: None,
            ..call
        };
        match stop {
            RouteError::CallResult(end) => self.ended.push((asked, end)),
            RouteError::Elsewhere => self.again(vec![asked], errors::nodes_disagree),
            RouteError::Redirected(Redirect::Moved(addr), _) => {
                self.topology.moved(asked.slot, &addr);
                left.ask = Some(Some(addr));
                self.again(vec![asked], errors::nodes_disagree);
            }
            RouteError::Redirected(Redirect::Ask(addr), _) => match self.topology.find(&addr).await
            {
                Ok(target) => self.again(asked.asking(&target), errors::slot_is_moving),
                Err(error) => {
                    left.pause = true;
                    self.again(vec![asked], || error);
                }
            },
            RouteError::Redirected(Redirect::Both, _) => {
                // Each name by itself may be on one side.
                let many = asked.is_about_many();
                left.pause |= !many;
                let calls = if many { asked.by_name() } else { vec![asked] };
                self.again(calls, errors::slot_is_moving);
            }
            RouteError::Redirected(Redirect::Down, answer) => {
                node.doubt(true);
                left.ask = Some(None);
                left.pause = true;
                self.again(vec![asked], || errors::cluster_down(&answer));
            }
        }
    }

    /// Makes calls once more, if there is time left.
    fn again(&mut self, calls: Vec<Call>, why: impl FnOnce() -> Error) {
        let timeout = self.topology.options().response_timeout;
        if self.start.elapsed() < timeout / 2 {
            self.open.extend(calls);
            return;
        }
        let error = why();
        let ended = |call| (call, CallResult::NotApplied(error.clone()));
        self.ended.extend(calls.into_iter().map(ended));
    }

    /// Until when an answer is waited for: half the time at least is left to the last call.
    fn deadline(&self) -> Instant {
        let timeout = self.topology.options().response_timeout;
        let left = timeout.saturating_sub(self.start.elapsed());
        ConnectionManager::deadline(left.max(timeout / 2))
    }
}

/// Makes calls of one node.
async fn visit(
    topology: &Topology,
    node: &ClusterNode,
    calls: &[Call],
    deadline: Instant,
) -> Vec<RouteError> {
    let all = |stop: &dyn Fn() -> RouteError| calls.iter().map(|_| stop()).collect();
    let notifications = node.manager.notifications();
    for call in calls {
        notifications.retry_denied(call.work.requests());
    }
    let session = match reach(topology, node, &calls[0]).await {
        Ok(session) => session,
        Err(None) => return all(&|| RouteError::Elsewhere),
        Err(Some(error)) => {
            return all(&|| RouteError::CallResult(CallResult::NotApplied(error.clone())));
        }
    };
    // Nobody acquires anything who cannot be notified. What is rejected beside that in its call is repeated.
    let denied = |call: &Call| {
        let mut requests = call.work.requests().iter();
        requests.find_map(|request| notifications.denied(request))
    };
    let denied: Vec<_> = calls.iter().map(denied).collect();
    let allowed = calls.iter().zip(&denied);
    let allowed: Vec<_> = allowed
        .filter(|(_, error)| error.is_none())
        .map(|(call, _)| call)
        .collect();
    let mut stops = send(topology, node, &session, &allowed, deadline)
        .await
        .into_iter();
    denied
        .into_iter()
        .filter_map(|error| match error {
            Some(error) => Some(RouteError::CallResult(CallResult::NotApplied(error))),
            None => stops.next(),
        })
        .collect()
}

/// Makes calls of one node on a connection.
async fn send(
    topology: &Topology,
    node: &ClusterNode,
    session: &Arc<Session>,
    calls: &[&Call],
    deadline: Instant,
) -> Vec<RouteError> {
    let sent_late = Instant::now() + topology.options().response_timeout / 2;
    let made = node.make(session, calls);
    match node
        .manager
        .answer(session, deadline.max(sent_late), made)
        .await
    {
        Err(error) => {
            node.doubt(true);
            let unanswered = |_| RouteError::CallResult(CallResult::Unanswered(error.clone()));
            calls.iter().map(unanswered).collect()
        }
        Ok(answers) => {
            node.doubt(false);
            node.continue_passing(calls, &answers).await;
            let stop = |answer: Value| {
                let redirect = match &answer {
                    Value::ServerError(error) => Redirect::parse(error, &node.addr),
                    _ => None,
                };
                match redirect {
                    Some(redirect) => RouteError::Redirected(redirect, answer),
                    None => {
                        RouteError::CallResult(CallResult::Answered(answer, Arc::clone(session)))
                    }
                }
            };
            answers.into_iter().map(stop).collect()
        }
    }
}

/// A connection to a node. `None` as an error: what is asked for is elsewhere by now.
///
/// While it does not come about, others are asked whether another node has taken the addr of this
/// one. Nothing was sent yet, so it can go there.
async fn reach(
    topology: &Topology,
    node: &ClusterNode,
    call: &Call,
) -> Result<Arc<Session>, Option<Error>> {
    let is_elsewhere = || {
        let map = topology.map();
        let owner = map.owner(call.slot);
        call.asked.is_none() && owner.is_none_or(|owner| !std::ptr::eq(&raw const **owner, node))
    };
    let mut settled = std::pin::pin!(node.manager.settled());
    let mut patience = match node.is_doubtful() {
        true => Duration::ZERO,
        false => DIAL_PATIENCE,
    };
    loop {
        tokio::select! {
            biased;
            settled = &mut settled => match settled {
                Ok(session) => return Ok(session),
                Err(error) => {
                    node.doubt(true);
                    topology.refresh(None).await;
                    return Err((!is_elsewhere()).then_some(error));
                }
            },
            () = sleep(patience) => {
                patience = DIAL_PATIENCE;
                topology.refresh(None).await;
                if is_elsewhere() {
                    return Err(None);
                }
            }
        }
    }
}
