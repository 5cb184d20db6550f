//! The way of every operation to the store.
//!
//! An operation travels at once when none is under way, otherwise with all others that came up
//! meanwhile: no delay for one caller, one round trip (and one transaction) for many. Operations
//! reach a shard of the store in the order in which they were handed in.
//!
//! A caller makes its call itself as long as it is the only one. It may stop being polled at any
//! moment, so as soon as another comes, a task of ours goes on with the call.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot::error::{RecvError, TryRecvError};
use tokio::sync::{Semaphore, oneshot};

use super::Route;
use super::sync::{Mutex, MutexGuard, Runtime, lock, report};
use crate::store::{BoxFuture, Reply, Request, Store};
use crate::{Error, ErrorKind};

/// How many operations travel together at most: enough to make the round trip's share small,
/// few enough that a batch never keeps a store busy for more than about a millisecond.
pub(super) const BATCH_MAX: usize = 256;

/// How many callers may have handed in an operation that is not answered. The others wait their
/// turn, first come first served, so that a slow store costs no more memory than this. What is posted
/// goes in always: it gives back what somebody holds.
const CALLERS_MAX: usize = 16_384;

/// A way to each shard of the store, and one for what waits for replicas there: one that does not
/// answer delays no other.
#[derive(Debug)]
pub(crate) struct Batcher {
    store: Arc<dyn Store>,
    runtime: Runtime,
    /// The way to the first, which most stores have only.
    first: Arc<ShardQueue>,
    /// The ways to those others that were ever needed.
    others: Mutex<HashMap<Route, Arc<ShardQueue>>>,
    /// The ways of what is given back past everything else.
    back: Mutex<HashMap<Route, Arc<ShardQueue>>>,
}

/// The way to one shard. If a record moves to another while its operations are under way, those that
/// follow do not wait for them.
#[derive(Debug)]
struct ShardQueue {
    store: Arc<dyn Store>,
    runtime: Runtime,
    queue: Mutex<PendingRequests>,
    room: Semaphore,
}

#[derive(Debug, Default)]
struct PendingRequests {
    under_way: bool,
    waiting: VecDeque<(Request, oneshot::Sender<Reply>)>,
    /// The call under way, if its caller makes it and is not at it in this moment.
    lone: Option<InlineCall>,
}

/// The call of one caller. Who has it has the turn.
struct InlineCall {
    call: BoxFuture<'static, Vec<Reply>>,
    replies: oneshot::Sender<Vec<Reply>>,
    turn: SendPermit,
}

impl Batcher {
    pub(crate) fn new(store: Arc<dyn Store>, runtime: Runtime) -> Self {
        Self {
            first: ShardQueue::new(&store, &runtime),
            others: Mutex::default(),
            back: Mutex::default(),
            store,
            runtime,
        }
    }

    /// Sends an operation and waits for its reply.
    ///
    /// Dropped before it is answered, the operation may or may not be applied.
    pub(crate) async fn submit(&self, request: Request) -> Reply {
        let way = self.way(&request);
        // It is never closed.
        let _room = way.room.acquire().await;
        match way.begin(request) {
            Submitted::Queued(reply) => answer(reply).await,
            Submitted::Alone(mut caller) => {
                report(|| metrics::counter!("leasehold_round_trips_total").increment(1));
                let mut replies = poll_fn(|context| caller.poll(context)).await;
                replies.pop().unwrap_or_else(unanswered)
            }
        }
    }

    /// Puts an operation into the queue without waiting: what is handed in after it reaches the
    /// store after it.
    pub(crate) fn post(&self, request: Request) -> oneshot::Receiver<Reply> {
        self.way(&request).post(request)
    }

    /// Puts a release into a queue without waiting. It may reach the store before what was handed in
    /// earlier, if that is a store of which a majority decides: there a release waits longer for those who
    /// are silent than an acquisition, which must not stand behind it.
    pub(crate) fn give_back(&self, request: Request) -> oneshot::Receiver<Reply> {
        let way = match self.store.capabilities().idempotent_acquire {
            true => self.way(&request),
            false => self.other_way(&self.back, self.route(&request)),
        };
        way.post(request)
    }

    /// Puts two operations on one record into the queue that travel together, if they go one way.
    pub(crate) fn post_both(&self, requests: [Request; 2]) -> [oneshot::Receiver<Reply>; 2] {
        if requests[0].durability.is_replicated() != requests[1].durability.is_replicated() {
            return requests.map(|request| self.post(request));
        }
        let way = self.way(&requests[0]);
        let mut queue = way.queue();
        let replies = requests.map(|request| queue.push(request));
        way.see_to(queue);
        replies
    }

    fn way(&self, request: &Request) -> Arc<ShardQueue> {
        match self.route(request) {
            Route::FIRST => Arc::clone(&self.first),
            route => self.other_way(&self.others, route),
        }
    }

    fn other_way(
        &self,
        ways: &Mutex<HashMap<Route, Arc<ShardQueue>>>,
        route: Route,
    ) -> Arc<ShardQueue> {
        let new = || ShardQueue::new(&self.store, &self.runtime);
        Arc::clone(lock(ways).entry(route).or_insert_with(new))
    }

    /// Which way an operation goes.
    pub(super) fn route(&self, request: &Request) -> Route {
        Route::of(&self.store, &request.key, request.durability)
    }
}

/// Waits for the reply to a posted operation.
pub(crate) async fn answer(reply: impl Future<Output = Result<Reply, RecvError>>) -> Reply {
    reply.await.unwrap_or_else(|_| unanswered())
}

fn unanswered() -> Reply {
    Reply::Unknown(Error::new(
        ErrorKind::Unreachable,
        "the request was given up before the store answered",
    ))
}

impl PendingRequests {
    fn push(&mut self, request: Request) -> oneshot::Receiver<Reply> {
        let (reply, receiver) = oneshot::channel();
        self.waiting.push_back((request, reply));
        receiver
    }
}

impl ShardQueue {
    fn new(store: &Arc<dyn Store>, runtime: &Runtime) -> Arc<Self> {
        Arc::new(Self {
            store: Arc::clone(store),
            runtime: runtime.clone(),
            queue: Mutex::default(),
            room: Semaphore::new(CALLERS_MAX),
        })
    }

    fn begin(self: &Arc<Self>, request: Request) -> Submitted {
        let mut queue = self.queue();
        if queue.under_way {
            let reply = queue.push(request);
            self.see_to(queue);
            return Submitted::Queued(reply);
        }
        queue.under_way = true;
        let (lone, replies) = InlineCall::new(self, request);
        queue.lone = Some(lone);
        Submitted::Alone(CallFuture {
            way: Arc::clone(self),
            replies,
        })
    }

    fn post(self: &Arc<Self>, request: Request) -> oneshot::Receiver<Reply> {
        let mut queue = self.queue();
        let reply = queue.push(request);
        self.see_to(queue);
        reply
    }

    fn queue(&self) -> MutexGuard<'_, PendingRequests> {
        lock(&self.queue)
    }

    /// Sees to it that somebody sends what is in the queue.
    fn see_to(self: &Arc<Self>, mut queue: MutexGuard<'_, PendingRequests>) {
        if let Some(lone) = queue.lone.take() {
            drop(queue);
            self.go_on(lone);
        } else if !queue.under_way {
            queue.under_way = true;
            drop(queue);
            self.drain_later();
        }
    }

    /// Lays a call aside until its caller is polled again, or gives it to a task if others wait.
    fn lay_aside(self: &Arc<Self>, lone: InlineCall) {
        let mut queue = self.queue();
        if queue.waiting.is_empty() {
            queue.lone = Some(lone);
        } else {
            drop(queue);
            self.go_on(lone);
        }
    }

    fn go_on(self: &Arc<Self>, lone: InlineCall) {
        self.runtime.spawn(async move {
            // Should this end early, the turn is dropped last: the next call must not be taken for this
            // one by a caller that still hopes for its reply.
            let InlineCall {
                turn,
                replies,
                call,
            } = lone;
            // The caller may have left; its operation was applied all the same.
            let _ = replies.send(call.await);
            turn.drain().await;
        });
    }

    fn drain_later(self: &Arc<Self>) {
        let way = Arc::clone(self);
        // The turn begins with the task: one that never runs, as the runtime ends, passes on nothing.
        self.runtime
            .spawn(async move { SendPermit(way).drain().await });
    }

    fn next_batch(&self) -> (Vec<Request>, Vec<oneshot::Sender<Reply>>) {
        let mut queue = self.queue();
        let count = queue.waiting.len().min(BATCH_MAX);
        queue.waiting.drain(..count).unzip()
    }
}

/// How an operation was handed in.
enum Submitted {
    Queued(oneshot::Receiver<Reply>),
    Alone(CallFuture),
}

impl InlineCall {
    fn new(way: &Arc<ShardQueue>, request: Request) -> (Self, oneshot::Receiver<Vec<Reply>>) {
        let (replies, receiver) = oneshot::channel();
        let store = Arc::clone(&way.store);
        let lone = Self {
            call: Box::pin(async move { store.apply(vec![request]).await }),
            replies,
            turn: SendPermit(Arc::clone(way)),
        };
        (lone, receiver)
    }
}

impl fmt::Debug for InlineCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InlineCall").finish_non_exhaustive()
    }
}

/// One whose call is under way, made by itself or by the task that took it over.
struct CallFuture {
    way: Arc<ShardQueue>,
    replies: oneshot::Receiver<Vec<Reply>>,
}

impl CallFuture {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Vec<Reply>> {
        let lone = {
            let mut queue = self.way.queue();
            if let Poll::Ready(replies) = Pin::new(&mut self.replies).poll(context) {
                return Poll::Ready(replies.unwrap_or_default());
            }
            // Ours: as long as our replies are to come, nobody else has the turn.
            queue.lone.take()
        };
        let Some(mut lone) = lone else {
            return Poll::Pending;
        };
        let polled = lone.call.as_mut().poll(context);
        if polled.is_pending() {
            self.way.lay_aside(lone);
        }
        polled
    }
}

impl Drop for CallFuture {
    fn drop(&mut self) {
        let lone = {
            let mut queue = self.way.queue();
            let to_come = matches!(self.replies.try_recv(), Err(TryRecvError::Empty));
            queue.lone.take_if(|_| to_come)
        };
        drop(lone);
    }
}

/// The right to talk to the store; passed on when dropped, also by a panic or a cancelled caller.
struct SendPermit(Arc<ShardQueue>);

impl SendPermit {
    /// Sends what waits, until nothing does.
    async fn drain(self) {
        loop {
            let (requests, replies) = self.0.next_batch();
            if requests.is_empty() {
                break;
            }
            report(|| metrics::counter!("leasehold_round_trips_total").increment(1));
            let answers = self.0.store.apply(requests).await;
            for (reply, answer) in replies.into_iter().zip(answers) {
                // The caller may have left; its operation was applied all the same.
                let _ = reply.send(answer);
            }
        }
    }
}

impl Drop for SendPermit {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        if queue.waiting.is_empty() {
            queue.under_way = false;
        } else {
            drop(queue);
            self.0.drain_later();
        }
    }
}
