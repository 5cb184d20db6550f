//! Sends the operations of a client to the store, in batches and in order.
//!
//! An operation is sent immediately when no other is in flight on its route, otherwise together with all others
//! that arrived meanwhile: no delay for one caller, one round trip (and one transaction) for many.
//! The operations on a name reach its shard of the store in the order in which they were queued. Those on names
//! of different stripes may overtake each other.
//!
//! The stripes of a shard deliver their replies in turn: each one's next call is sent before the next one delivers.
//! Otherwise a server that sends the replies to several calls together would get the next calls together, and idle
//! while the client processes the replies.
//!
//! A caller polls its call itself as long as it is the only one. It may stop polling at any moment, so when
//! another operation arrives, a task takes the call over. A task runs all calls that wait for replicas.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use tokio::sync::oneshot::error::{RecvError, TryRecvError};
use tokio::sync::{Semaphore, oneshot};

use super::context::{Context, Route};
use super::primitives::{Mutex, MutexGuard, lock, report, yield_now};
use crate::store::{BoxFuture, Reply, Request, Shard};
use crate::{Error, ErrorKind};

/// How many operations a batch has at most: enough to make the round trip's share small, few enough that a
/// batch never keeps a store busy for more than about a millisecond.
pub(super) const BATCH_MAX: usize = 256;

/// How many callers may wait for a reply on one route. The others wait for their turn, first come first
/// served, so that a slow store costs no more memory than this. Posted operations are not limited:
/// they are mostly releases, which free a lock.
const CALLERS_MAX: usize = 16_384;

/// The queues of operations of a client: one for each route, which is a stripe of a shard, with or without waiting
/// for replicas.
pub(crate) struct Batcher {
    context: Context,
    /// The queue of the first route, which is found without a lock.
    first: Arc<RouteQueue>,
    others: Mutex<HashMap<Route, Arc<RouteQueue>>>,
    /// The queues of releases that may overtake earlier operations.
    unordered: Mutex<HashMap<Route, Arc<RouteQueue>>>,
    /// The delivery lock of each shard.
    delivery_locks: Mutex<HashMap<Shard, DeliveryLock>>,
    callers_max: usize,
}

/// The lock under which a stripe of a shard delivers its replies until its next call is sent. Only spawned tasks wait
/// for it.
type DeliveryLock = Arc<tokio::sync::Mutex<()>>;

/// The queue of operations of one route. Operations on a record that moves to another shard do not wait
/// for those that are in flight to the first.
struct RouteQueue {
    context: Context,
    pending: Mutex<PendingRequests>,
    callers: Semaphore,
    delivery: DeliveryLock,
}

#[derive(Default)]
struct PendingRequests {
    /// Whether there is a [`Sender`].
    busy: bool,
    waiting: VecDeque<(Request, oneshot::Sender<Reply>)>,
    /// The sender, if a caller has it and is not polled at this moment.
    idle: Option<Sender>,
}

/// The right to send the operations of a queue. When it is dropped, also by a panic or a cancelled caller, it
/// passes on.
struct Sender {
    queue: Arc<RouteQueue>,
    /// The call that a caller has begun for its own operation.
    call: Option<(BoxFuture<'static, Vec<Reply>>, oneshot::Sender<Reply>)>,
}

/// An operation that a caller waits for.
struct SubmittedCall {
    queue: Arc<RouteQueue>,
    reply: oneshot::Receiver<Reply>,
    /// Whether the caller polls the call itself, unless a task takes it over.
    inline: bool,
}

impl Batcher {
    pub(crate) fn new(context: &Context) -> Self {
        Self::with_callers_max(context, CALLERS_MAX)
    }

    pub(super) fn with_callers_max(context: &Context, callers_max: usize) -> Self {
        let delivery = DeliveryLock::default();
        let delivery_locks = HashMap::from([(Route::FIRST.shard, Arc::clone(&delivery))]);
        Self {
            first: RouteQueue::new(context, callers_max, delivery),
            others: Mutex::default(),
            unordered: Mutex::default(),
            delivery_locks: Mutex::new(delivery_locks),
            context: context.clone(),
            callers_max,
        }
    }

    /// Sends an operation and waits for its reply.
    ///
    /// If the future is dropped before that, the operation may or may not be applied.
    pub(crate) async fn submit(&self, request: Request) -> Reply {
        let queue = self.queue(&request);
        // The semaphore is never closed.
        let _permit = queue.callers.acquire().await;
        let call = {
            let mut pending = queue.pending();
            // Renewals wait in the store for a call that waits for replicas.
            let inline = !pending.busy && !request.durability.is_replicated();
            let reply = if inline {
                let (reply, receiver) = oneshot::channel();
                let store = Arc::clone(&self.context.store);
                let call = Box::pin(async move { store.apply(vec![request]).await });
                pending.busy = true;
                pending.idle = Some(Sender {
                    queue: Arc::clone(&queue),
                    call: Some((call, reply)),
                });
                drop(pending);
                count_round_trip();
                receiver
            } else {
                let receiver = pending.push(request);
                queue.ensure_sender(pending);
                receiver
            };
            SubmittedCall {
                queue: Arc::clone(&queue),
                reply,
                inline,
            }
        };
        call.await
    }

    /// Queues an operation without waiting: it reaches the store before those that join the same queue later.
    pub(crate) fn post(&self, request: Request) -> oneshot::Receiver<Reply> {
        self.queue(&request).post(request)
    }

    /// Queues a release without waiting. At a store of many masters it may overtake operations that were queued
    /// before: a release waits longer for silent masters than an acquire, which must not be queued behind it.
    pub(crate) fn post_unordered(&self, request: Request) -> oneshot::Receiver<Reply> {
        if self.context.idempotent {
            return self.post(request);
        }
        let queue = self.queue_in(&self.unordered, self.context.route(&request));
        queue.post(request)
    }

    /// Queues two operations on one record, which travel together if they have the same route.
    pub(crate) fn post_both(&self, requests: [Request; 2]) -> [oneshot::Receiver<Reply>; 2] {
        if requests[0].durability.is_replicated() != requests[1].durability.is_replicated() {
            return requests.map(|request| self.post(request));
        }
        let queue = self.queue(&requests[0]);
        let mut pending = queue.pending();
        let replies = requests.map(|request| pending.push(request));
        queue.ensure_sender(pending);
        replies
    }

    /// Queues operations without waiting. Those of one route travel together.
    pub(crate) fn post_all(&self, requests: Vec<Request>) -> Vec<oneshot::Receiver<Reply>> {
        let mut routes: BTreeMap<Route, Vec<(usize, Request)>> = BTreeMap::new();
        for numbered in requests.into_iter().enumerate() {
            let route = self.context.route(&numbered.1);
            routes.entry(route).or_default().push(numbered);
        }
        let mut replies = Vec::new();
        for numbered in routes.into_values() {
            let Some((_, first)) = numbered.first() else {
                continue;
            };
            let queue = self.queue(first);
            let mut pending = queue.pending();
            let pushed = numbered.into_iter();
            replies.extend(pushed.map(|(number, request)| (number, pending.push(request))));
            queue.ensure_sender(pending);
        }
        replies.sort_by_key(|(number, _)| *number);
        replies.into_iter().map(|(_, reply)| reply).collect()
    }

    fn queue(&self, request: &Request) -> Arc<RouteQueue> {
        match self.context.route(request) {
            Route::FIRST => Arc::clone(&self.first),
            route => self.queue_in(&self.others, route),
        }
    }

    fn queue_in(
        &self,
        queues: &Mutex<HashMap<Route, Arc<RouteQueue>>>,
        route: Route,
    ) -> Arc<RouteQueue> {
        let new = || {
            let delivery = Arc::clone(lock(&self.delivery_locks).entry(route.shard).or_default());
            RouteQueue::new(&self.context, self.callers_max, delivery)
        };
        Arc::clone(lock(queues).entry(route).or_insert_with(new))
    }

    /// Loses the right to send that a caller has, for the model that notices it.
    #[cfg(all(test, feature = "__shuttle"))]
    pub(super) fn lose_sender(&self, request: &Request) {
        let sender = self.queue(request).pending().idle.take();
        std::mem::forget(sender);
    }
}

/// Waits for the reply to a posted operation.
pub(crate) async fn reply_to(posted: impl Future<Output = Result<Reply, RecvError>>) -> Reply {
    posted.await.unwrap_or_else(|_| no_reply())
}

fn no_reply() -> Reply {
    Reply::Unknown(Error::new(
        ErrorKind::Unreachable,
        "the request was given up before the store replied",
    ))
}

fn count_round_trip() {
    report(|| metrics::counter!("leasehold_round_trips_total").increment(1));
}

impl PendingRequests {
    fn push(&mut self, request: Request) -> oneshot::Receiver<Reply> {
        let (reply, receiver) = oneshot::channel();
        self.waiting.push_back((request, reply));
        receiver
    }
}

impl RouteQueue {
    fn new(context: &Context, callers_max: usize, delivery: DeliveryLock) -> Arc<Self> {
        Arc::new(Self {
            context: context.clone(),
            pending: Mutex::default(),
            callers: Semaphore::new(callers_max),
            delivery,
        })
    }

    fn pending(&self) -> MutexGuard<'_, PendingRequests> {
        lock(&self.pending)
    }

    fn post(self: &Arc<Self>, request: Request) -> oneshot::Receiver<Reply> {
        let mut pending = self.pending();
        let reply = pending.push(request);
        self.ensure_sender(pending);
        reply
    }

    /// Starts a task that sends the waiting operations, unless there is one. It first takes over the call that a
    /// caller has begun, if that is in flight.
    fn ensure_sender(self: &Arc<Self>, mut pending: MutexGuard<'_, PendingRequests>) {
        if let Some(sender) = pending.idle.take() {
            drop(pending);
            self.context.runtime.spawn(sender.run());
        } else if !pending.busy {
            pending.busy = true;
            drop(pending);
            self.spawn_sender();
        }
    }

    fn spawn_sender(self: &Arc<Self>) {
        let queue = Arc::clone(self);
        // The sender exists as soon as the task runs: one that never runs, as the runtime ends, passes on
        // nothing.
        self.context
            .runtime
            .spawn(async move { Sender { queue, call: None }.run().await });
    }

    /// The operations of the next call. An acquisition whose caller has given up is not sent: the store would grant it to
    /// nobody.
    fn next_batch(&self) -> (Vec<Request>, Vec<oneshot::Sender<Reply>>) {
        let waiting: Vec<_> = {
            let mut pending = self.pending();
            let count = pending.waiting.len().min(BATCH_MAX);
            pending.waiting.drain(..count).collect()
        };
        let is_wanted = |(request, reply): &(Request, oneshot::Sender<Reply>)| {
            !(request.acquires() && reply.is_closed())
        };
        waiting.into_iter().filter(is_wanted).unzip()
    }
}

impl Sender {
    /// Completes the call of a caller, then sends what waits, until nothing does.
    async fn run(mut self) {
        if let Some((call, _)) = &mut self.call {
            let replies = call.await;
            self.reply(replies);
        }
        let queue = Arc::clone(&self.queue);
        let mut turn = None;
        loop {
            let (requests, callers) = queue.next_batch();
            drop(turn.take());
            if requests.is_empty() {
                return;
            }
            count_round_trip();
            let replies = queue.context.store.apply(requests).await;
            turn = Some(queue.delivery.lock().await);
            for (caller, reply) in callers.into_iter().zip(replies) {
                // The caller may have left; its operation was applied all the same.
                let _ = caller.send(reply);
            }
            // The operations with which these callers go on join the next batch.
            yield_now().await;
        }
    }

    /// Passes the reply to the caller whose call was taken over.
    fn reply(&mut self, mut replies: Vec<Reply>) {
        if let (Some((_, caller)), Some(reply)) = (self.call.take(), replies.pop()) {
            // The caller may have left; its operation was applied all the same.
            let _ = caller.send(reply);
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // Before another sender exists: the next call must not be taken for this one by a caller that still
        // waits for its reply.
        drop(self.call.take());
        let mut pending = self.queue.pending();
        if pending.waiting.is_empty() {
            pending.busy = false;
        } else {
            drop(pending);
            self.queue.spawn_sender();
        }
    }
}

impl Future for SubmittedCall {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<Reply> {
        let sender = {
            let call = &mut *self;
            let mut pending = call.queue.pending();
            if let Poll::Ready(reply) = Pin::new(&mut call.reply).poll(context) {
                return Poll::Ready(reply.unwrap_or_else(|_| no_reply()));
            }
            // As long as the reply is outstanding, an idle sender has this caller's call.
            pending.idle.take_if(|_| call.inline)
        };
        let Some(mut sender) = sender else {
            return Poll::Pending;
        };
        let Some((call, _)) = &mut sender.call else {
            return Poll::Pending;
        };
        if let Poll::Ready(mut replies) = call.as_mut().poll(context) {
            // The end of the sender does not wake this task again.
            self.reply.close();
            return Poll::Ready(replies.pop().unwrap_or_else(no_reply));
        }
        let mut pending = self.queue.pending();
        if pending.waiting.is_empty() {
            pending.idle = Some(sender);
        } else {
            drop(pending);
            self.queue.context.runtime.spawn(sender.run());
        }
        Poll::Pending
    }
}

impl Drop for SubmittedCall {
    fn drop(&mut self) {
        let sender = {
            let mut pending = self.queue.pending();
            let outstanding = matches!(self.reply.try_recv(), Err(TryRecvError::Empty));
            pending.idle.take_if(|_| self.inline && outstanding)
        };
        drop(sender);
    }
}
