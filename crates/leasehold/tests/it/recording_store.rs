//! A store with a recorder on its line: it notes what passes, and can be closed.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::store::{BoxFuture, ForwardingStore, Reply, Request, Store};
use leasehold_core::{ClientId, LeaseId, Op, Outcome};
use leasehold_testkit::eventually_async;
use tokio::sync::watch;

const SOON: Duration = Duration::from_secs(20);

/// Where batches are stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Valve {
    Open,
    /// On their way there: the store knows nothing of them.
    ClosedBefore,
    /// On their way back: the store has applied them.
    ClosedAfter,
}

/// A batch that came, and what became of it.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) ops: Vec<Op>,
    /// One for each operation. Empty as long as there is no answer, and if there never is one.
    pub(crate) outcomes: Vec<Outcome>,
    /// When it came and when it was answered, in the order of all events at all taps.
    pub(crate) came: u64,
    pub(crate) answered: u64,
}

#[derive(Debug)]
pub(crate) struct RecordingStore {
    inner: Arc<dyn Store>,
    noted: Mutex<Noted>,
    valve: watch::Sender<Valve>,
    stopped: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Noted {
    batches: Vec<Batch>,
    /// Those before this one are forgotten.
    begin: usize,
}

/// Gives every event at every recorder its place in their order.
fn stamp() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::SeqCst)
}

impl RecordingStore {
    pub(crate) fn on(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            noted: Mutex::default(),
            valve: watch::Sender::new(Valve::Open),
            stopped: watch::Sender::new(0),
        })
    }

    pub(crate) fn set(&self, valve: Valve) {
        self.valve.send_replace(valve);
    }

    /// Waits until a batch is stopped at the valve.
    pub(crate) async fn until_stopped(&self) {
        let mut stopped = self.stopped.subscribe();
        let arrived = stopped.wait_for(|stopped| *stopped > 0);
        tokio::time::timeout(SOON, arrived).await.unwrap().unwrap();
    }

    /// The batches so far. Not those that only renew: they come when their time has come.
    pub(crate) fn batches(&self) -> Vec<Batch> {
        let renews = |op: &Op| matches!(op, Op::Renew { .. });
        let mut batches = self.all_batches();
        batches.retain(|batch| !batch.ops.iter().all(renews));
        batches
    }

    /// All batches so far.
    pub(crate) fn all_batches(&self) -> Vec<Batch> {
        let noted = self.noted();
        noted.batches[noted.begin..].to_vec()
    }

    /// The batches so far, each as the names of its operations.
    pub(crate) fn verbs(&self) -> Vec<Vec<&'static str>> {
        let batches = self.batches();
        let verbs = |batch: &Batch| batch.ops.iter().map(verb).collect();
        batches.iter().map(verbs).collect()
    }

    /// Forgets what was noted, so that a test sees what comes from here on.
    pub(crate) fn clear(&self) {
        let mut noted = self.noted();
        noted.begin = noted.batches.len();
    }

    /// How many questions came.
    pub(crate) fn questions(&self) -> usize {
        let batches = self.batches();
        let ops = batches.iter().flat_map(|batch| &batch.ops);
        ops.filter(|op| matches!(op, Op::Acquire { .. })).count()
    }

    /// The client whose operations these are. It must have asked for a lock.
    pub(crate) fn client(&self) -> ClientId {
        let batches = self.all_batches();
        let mut ops = batches.iter().flat_map(|batch| &batch.ops);
        let client = ops.find_map(|op| match op {
            Op::Acquire { lease, .. } => Some(lease.client),
            _ => None,
        });
        client.unwrap()
    }

    /// How many leases were given a place in the store's queue so far.
    pub(crate) fn queued(&self) -> usize {
        let batches = self.batches();
        let queued = batches.iter().flat_map(|batch| batch.queued());
        queued.collect::<HashSet<LeaseId>>().len()
    }

    /// Waits until so many leases were given a place in the store's queue.
    pub(crate) async fn until_queued(&self, leases: usize) {
        eventually_async(SOON, async || self.queued() >= leases).await;
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn pass(&self, closed: Valve) {
        if *self.valve.borrow() != closed {
            return;
        }
        let _stopped = Stopped::at(&self.stopped);
        let mut valve = self.valve.subscribe();
        valve.wait_for(|valve| *valve != closed).await.unwrap();
    }

    async fn apply_noted(&self, requests: Vec<Request>) -> Vec<Reply> {
        let at = {
            let mut noted = self.noted();
            noted.batches.push(Batch {
                ops: requests.iter().map(|request| request.op).collect(),
                outcomes: Vec::new(),
                came: stamp(),
                answered: u64::MAX,
            });
            noted.batches.len() - 1
        };
        self.pass(Valve::ClosedBefore).await;
        let replies = self.inner.apply(requests).await;
        let outcomes = replies.iter().map(|reply| match reply {
            Reply::Applied { outcome, .. } => Some(*outcome),
            Reply::Rejected(_) | Reply::Unknown(_) => None,
        });
        {
            let batch = &mut self.noted().batches[at];
            batch.outcomes = outcomes.collect::<Option<_>>().unwrap_or_default();
            batch.answered = stamp();
        }
        self.pass(Valve::ClosedAfter).await;
        replies
    }
}

impl Batch {
    /// The leases that were given a place in the store's queue.
    pub(crate) fn queued(&self) -> impl Iterator<Item = LeaseId> {
        let answered = self.ops.iter().zip(&self.outcomes);
        answered.filter_map(|(op, outcome)| match (op, outcome) {
            (Op::Acquire { lease, .. }, Outcome::Refused { place: Some(_), .. })
            | (
                Op::Acquire {
                    lease, wait: true, ..
                },
                Outcome::Refused { place: None, .. },
            ) => Some(*lease),
            _ => None,
        })
    }
}

/// One batch that is stopped, until this is dropped.
struct Stopped<'a>(&'a watch::Sender<usize>);

impl<'a> Stopped<'a> {
    fn at(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

fn verb(op: &Op) -> &'static str {
    match op {
        Op::Acquire { .. } => "acquire",
        Op::Enter { .. } => "enter",
        Op::SetToken { .. } => "fence",
        Op::Renew { .. } => "renew",
        Op::Release { .. } => "release",
        Op::Revoke => "revoke",
    }
}

impl ForwardingStore for RecordingStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        Box::pin(self.apply_noted(batch))
    }
}

impl fmt::Display for RecordingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.inner, f)
    }
}
