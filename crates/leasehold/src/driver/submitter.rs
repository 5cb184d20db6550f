//! The way of every operation to the store.
//!
//! An operation travels at once when none is under way, otherwise with all others that came up
//! meanwhile: no delay for one caller, one round trip (and one transaction) for many. Operations
//! reach the store in the order in which they were handed in.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::RecvError;

use crate::store::{Reply, Request, Store};
use crate::{Error, ErrorKind};

/// How many operations travel together at most: enough to make the round trip's share small,
/// few enough that a batch never keeps a store busy for more than about a millisecond.
const BATCH_MAX: usize = 256;

#[derive(Clone, Debug)]
pub(crate) struct Submitter(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    runtime: Handle,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    under_way: bool,
    waiting: VecDeque<(Request, oneshot::Sender<Reply>)>,
}

impl Submitter {
    pub(crate) fn new(store: Arc<dyn Store>, runtime: Handle) -> Self {
        Self(Arc::new(Shared {
            store,
            runtime,
            queue: Mutex::default(),
        }))
    }

    /// Sends an operation and waits for its reply.
    ///
    /// Dropped before it is answered, the operation may or may not be applied.
    pub(crate) async fn submit(&self, request: Request) -> Reply {
        let queued = {
            let mut queue = self.0.queue();
            if queue.under_way {
                Some(queue.push(request.clone()))
            } else {
                queue.under_way = true;
                None
            }
        };
        if let Some(reply) = queued {
            return answer(reply).await;
        }
        let _turn = Turn(&self.0);
        metrics::counter!("leasehold_round_trips_total").increment(1);
        let mut replies = self.0.store.apply(vec![request]).await;
        replies.pop().unwrap_or_else(unanswered)
    }

    /// Puts an operation into the queue without waiting: what is handed in after it reaches the
    /// store after it.
    pub(crate) fn post(&self, request: Request) -> oneshot::Receiver<Reply> {
        let mut queue = self.0.queue();
        let reply = queue.push(request);
        self.0.see_to(queue);
        reply
    }

    /// Puts two operations into the queue that travel together.
    pub(crate) fn post_both(&self, requests: [Request; 2]) -> [oneshot::Receiver<Reply>; 2] {
        let mut queue = self.0.queue();
        let replies = requests.map(|request| queue.push(request));
        self.0.see_to(queue);
        replies
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

impl Queue {
    fn push(&mut self, request: Request) -> oneshot::Receiver<Reply> {
        let (reply, receiver) = oneshot::channel();
        self.waiting.push_back((request, reply));
        receiver
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that somebody sends what is in the queue.
    fn see_to(self: &Arc<Self>, mut queue: MutexGuard<'_, Queue>) {
        if !queue.under_way {
            queue.under_way = true;
            drop(queue);
            self.drain_later();
        }
    }

    fn drain_later(self: &Arc<Self>) {
        let shared = Arc::clone(self);
        self.runtime.spawn(async move { shared.drain().await });
    }

    async fn drain(self: Arc<Self>) {
        let turn = Turn(&self);
        loop {
            let (requests, replies) = self.next_batch();
            if requests.is_empty() {
                break;
            }
            metrics::counter!("leasehold_round_trips_total").increment(1);
            let answers = self.store.apply(requests).await;
            for (reply, answer) in replies.into_iter().zip(answers) {
                // The caller may have left; its operation was applied all the same.
                let _ = reply.send(answer);
            }
        }
        drop(turn);
    }

    fn next_batch(&self) -> (Vec<Request>, Vec<oneshot::Sender<Reply>>) {
        let mut queue = self.queue();
        let count = queue.waiting.len().min(BATCH_MAX);
        queue.waiting.drain(..count).unzip()
    }
}

/// The right to talk to the store; passed on when dropped, also by a panic or a cancelled caller.
struct Turn<'a>(&'a Arc<Shared>);

impl Drop for Turn<'_> {
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
