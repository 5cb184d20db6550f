//! A store that records batches, and can stop them.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use leasehold::__private::store::{
    BoxFuture, Event, ForwardingStore, Keyspace, Listener, Listening, Reply, Request, Store,
};
use leasehold_core::{ClientId, LeaseId, Op, Outcome};
use leasehold_testkit::eventually_async;
use tokio::sync::watch;

use crate::waiters::SOON;

/// Where batches are stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Valve {
    Open,
    /// Before the store: it does not know them.
    ClosedBefore,
    /// After the store: it has applied them.
    ClosedAfter,
}

/// A batch and its outcomes.
#[derive(Clone, Debug)]
struct Batch {
    ops: Vec<Op>,
    /// One per operation. Empty as long as there is no reply.
    outcomes: Vec<Outcome>,
}

#[derive(Debug)]
pub(crate) struct RecordingStore {
    inner: Arc<dyn Store>,
    recorded: Mutex<Recorded>,
    valve: watch::Sender<Valve>,
    /// Whether a batch was stopped.
    stopped: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Recorded {
    batches: Vec<Batch>,
    /// Batches before this one are forgotten.
    begin: usize,
    /// How often the client was registered.
    registrations: usize,
    listeners: Vec<Weak<dyn Listener>>,
}

impl RecordingStore {
    pub(crate) fn on(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            recorded: Mutex::default(),
            valve: watch::Sender::new(Valve::Open),
            stopped: watch::Sender::new(false),
        })
    }

    pub(crate) fn set(&self, valve: Valve) {
        self.valve.send_replace(valve);
    }

    /// Waits until a batch is stopped at the valve.
    pub(crate) async fn until_stopped(&self) {
        let mut stopped = self.stopped.subscribe();
        let arrived = stopped.wait_for(|stopped| *stopped);
        tokio::time::timeout(SOON, arrived).await.unwrap().unwrap();
    }

    /// The batches so far, without those that only renew, which are timed.
    fn batches(&self) -> Vec<Batch> {
        let renews = |op: &Op| matches!(op, Op::Renew { count: None, .. });
        let recorded = self.recorded();
        let mut batches = recorded.batches[recorded.begin..].to_vec();
        batches.retain(|batch| !batch.ops.iter().all(renews));
        batches
    }

    /// The batches so far, each as the names of its operations.
    pub(crate) fn operations(&self) -> Vec<Vec<&'static str>> {
        let batches = self.batches();
        let verbs = |batch: &Batch| batch.ops.iter().map(verb).collect();
        batches.iter().map(verbs).collect()
    }

    /// Checks that no batch was sent but renewals.
    #[track_caller]
    pub(crate) fn assert_silent(&self) {
        assert_eq!(self.operations(), Vec::<Vec<&str>>::new());
    }

    /// Forgets the batches so far.
    pub(crate) fn clear(&self) {
        let mut recorded = self.recorded();
        recorded.begin = recorded.batches.len();
    }

    /// The number of acquisitions so far.
    pub(crate) fn acquisitions(&self) -> usize {
        let batches = self.batches();
        let ops = batches.iter().flat_map(|batch| &batch.ops);
        ops.filter(|op| matches!(op, Op::Acquire { .. })).count()
    }

    /// How often the client was registered so far.
    pub(crate) fn registrations(&self) -> usize {
        self.recorded().registrations
    }

    /// The number of leases that joined the queue so far.
    fn queued(&self) -> usize {
        let batches = self.batches();
        let queued = batches.iter().flat_map(|batch| batch.queued());
        queued.collect::<HashSet<LeaseId>>().len()
    }

    /// Waits until this number of leases have joined the queue.
    pub(crate) async fn until_queued(&self, leases: usize) {
        eventually_async(SOON, async || self.queued() >= leases).await;
    }

    /// Notifies the client, as if the store did.
    pub(crate) fn notify(&self, event: &Event) {
        let listeners = self.recorded().listeners.clone();
        for listener in listeners.iter().filter_map(Weak::upgrade) {
            listener.notify(event.clone());
        }
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn pass(&self, closed: Valve) {
        if *self.valve.borrow() != closed {
            return;
        }
        self.stopped.send_replace(true);
        let mut valve = self.valve.subscribe();
        valve.wait_for(|valve| *valve != closed).await.unwrap();
    }

    async fn apply_recorded(&self, requests: Vec<Request>) -> Vec<Reply> {
        if let [request] = &requests[..]
            && let Op::Describe { .. } = request.op
        {
            self.recorded().registrations += 1;
            return self.inner.apply(requests).await;
        }
        let at = {
            let mut recorded = self.recorded();
            recorded.batches.push(Batch {
                ops: requests.iter().map(|request| request.op.clone()).collect(),
                outcomes: Vec::new(),
            });
            recorded.batches.len() - 1
        };
        self.pass(Valve::ClosedBefore).await;
        let replies = self.inner.apply(requests).await;
        let outcomes = replies.iter().map(|reply| match reply {
            Reply::Applied { outcome, .. } => Some(outcome.clone()),
            Reply::Rejected(_) | Reply::Unknown(_) => None,
        });
        let outcomes: Option<Vec<_>> = outcomes.collect();
        self.recorded().batches[at].outcomes = outcomes.unwrap_or_default();
        self.pass(Valve::ClosedAfter).await;
        replies
    }
}

impl Batch {
    /// The leases that joined the queue.
    fn queued(&self) -> impl Iterator<Item = LeaseId> {
        let replied = self.ops.iter().zip(&self.outcomes);
        replied.filter_map(|(op, outcome)| match (op, outcome) {
            (Op::Acquire(acquire), Outcome::Refused { queue_position, .. }) => {
                (acquire.wait || queue_position.is_some()).then_some(acquire.lease)
            }
            (Op::Acquire(acquire), Outcome::GrantedInPart { .. }) => {
                acquire.wait.then_some(acquire.lease)
            }
            _ => None,
        })
    }
}

fn verb(op: &Op) -> &'static str {
    match op {
        Op::Acquire { .. } => "acquire",
        Op::Convert { .. } => "convert",
        Op::SetLimit { .. } => "set_limit",
        Op::SetToken { .. } => "fence",
        Op::Renew { count: None, .. } => "renew",
        Op::Renew { .. } => "enter",
        Op::Release { rest: None, .. } => "release",
        Op::Release { .. } => "release_after",
        Op::Revoke(_) => "revoke",
        Op::Serve => "serve",
        Op::WriteNote { .. } => "note",
        Op::Remove(_) => "remove",
        Op::Arrive { .. } => "arrive",
        Op::Describe { .. } => "describe",
    }
}

impl ForwardingStore for RecordingStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        Box::pin(self.apply_recorded(batch))
    }

    fn listen(&self, space: &Keyspace, client: ClientId, to: Weak<dyn Listener>) -> Listening {
        self.recorded().listeners.push(Weak::clone(&to));
        self.inner.listen(space, client, to)
    }
}

impl fmt::Display for RecordingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.inner, f)
    }
}
