//! The batcher under a model checker.
//!
//! Tasks submit and post operations on a few names, and wait for their replies or leave at any moment, while the
//! calls of the store take several turns or panic. In every order, the operations on a name reach the store in the
//! order in which they were queued, and each task that stays gets the reply to its own operation. A lost right to
//! send would leave a task waiting for ever, which the checker reports as a deadlock.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::{ClientId, LeaseId, Op, Outcome, StoreTime};
use shuttle::future::block_on;
use shuttle::rand::{Rng, thread_rng};
use tokio::sync::oneshot;

use super::super::batcher::{Batcher, reply_to};
use super::super::context::Context;
use super::super::primitives::Runtime;
use super::super::primitives::modelled::{ModelPanic, survived};
use super::{a_while, key, poll_times};
use crate::clock::BootClock;
use crate::store::{
    BoxFuture, Capabilities, ForwardingStore, Key, MemoryStore, Reply, Request, Shard, Store,
};

const RUNS: usize = 1_000;
const TASKS: u8 = 4;
/// Of each task.
const OPERATIONS: usize = 3;
/// In both stripes.
const NAMES: Range<u8> = 3..6;
const UNLIMITED: usize = 1_000;

/// A part of the protocol that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    None,
    /// The operations on a name take turns on two routes.
    RoutesInTurn,
    /// A caller that leaves takes the right to send with it.
    KeepsSender,
}

/// A store whose reply to an operation has the number of the operation as its time.
#[derive(Debug)]
struct NumberingStore {
    inner: MemoryStore,
    parallel_calls: u64,
    panics: AtomicBool,
    mutation: Mutation,
    // Not the model checker's: to note something is no point at which others may run.
    recorded: Mutex<Recorded>,
}

#[derive(Debug, Default)]
struct Recorded {
    /// Events so far. An operation has the number of the event of its begin.
    events: u64,
    /// The event after which an operation was in a queue, by its number.
    queued: HashMap<u64, u64>,
    /// The latest operation on each name that has reached the store.
    latest: HashMap<Key, u64>,
    /// Whether an operation has reached the store before one on the same name that was queued earlier.
    overtaken: bool,
    routes: u32,
    in_flight: usize,
    most_in_flight: usize,
    largest_batch: usize,
}

impl NumberingStore {
    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn event(&self) -> u64 {
        let mut recorded = self.recorded();
        recorded.events += 1;
        recorded.events
    }

    async fn echo(&self, batch: Vec<Request>) -> Vec<Reply> {
        let _in_flight = InFlight::new(self, batch.len());
        a_while().await;
        self.may_panic();
        let replies = batch.iter().map(|request| self.reach(request)).collect();
        a_while().await;
        self.may_panic();
        replies
    }

    fn may_panic(&self) {
        if self.panics.load(Ordering::Relaxed) && thread_rng().gen_bool(0.2) {
            resume_unwind(Box::new(ModelPanic));
        }
    }

    fn reach(&self, request: &Request) -> Reply {
        let number = number(request);
        let mut recorded = self.recorded();
        let queued = recorded.queued.get(&number).copied().unwrap_or(u64::MAX);
        let latest = recorded.latest.entry(request.key.clone()).or_default();
        let overtaken = *latest > queued;
        *latest = number.max(*latest);
        recorded.overtaken |= overtaken;
        Reply::Applied {
            outcome: Outcome::Released,
            now: Some(StoreTime::from_micros(number)),
        }
    }
}

/// A call in flight, until it returns or is given up.
struct InFlight<'a>(&'a NumberingStore);

impl<'a> InFlight<'a> {
    fn new(store: &'a NumberingStore, batch: usize) -> Self {
        let mut recorded = store.recorded();
        recorded.in_flight += 1;
        recorded.most_in_flight = recorded.in_flight.max(recorded.most_in_flight);
        recorded.largest_batch = batch.max(recorded.largest_batch);
        Self(store)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.recorded().in_flight -= 1;
    }
}

impl ForwardingStore for NumberingStore {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        Box::pin(self.echo(batch))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            parallel_calls: self.parallel_calls,
            ..self.inner.capabilities()
        }
    }

    fn shard(&self, _: &Key) -> Shard {
        let mut recorded = self.recorded();
        recorded.routes += u32::from(self.mutation == Mutation::RoutesInTurn);
        Shard(recorded.routes % 2)
    }
}

impl fmt::Display for NumberingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("echo:")
    }
}

fn number(request: &Request) -> u64 {
    match &request.op {
        Op::Release { lease, .. } => lease.number,
        op => unreachable!("{op:?}"),
    }
}

/// A batcher and its store.
struct World {
    store: Arc<NumberingStore>,
    batcher: Batcher,
}

impl World {
    fn new(parallel_calls: u64, callers_max: usize, panics: bool, mutation: Mutation) -> Arc<Self> {
        let store = Arc::new(NumberingStore {
            inner: MemoryStore::new(),
            parallel_calls,
            panics: AtomicBool::new(panics),
            mutation,
            recorded: Mutex::default(),
        });
        let context = Context::new(Arc::clone(&store) as _, Arc::new(BootClock), Runtime);
        let batcher = Batcher::with_callers_max(&context, callers_max);
        Arc::new(Self { store, batcher })
    }

    /// What the store has recorded, after a check of the order.
    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        let recorded = self.store.recorded();
        assert!(!recorded.overtaken, "an operation overtook another");
        recorded
    }

    fn request(&self, name: u8) -> Request {
        let lease = LeaseId {
            client: ClientId::from_random([1; 16]),
            number: self.store.event(),
        };
        Request::new(key(name), Op::release(lease))
    }

    /// An operation is in a queue now, or waits for its turn to be.
    fn queued(&self, number: u64) {
        let event = self.store.event();
        self.store.recorded().queued.insert(number, event);
    }

    fn check(&self, number: u64, reply: &Reply) {
        match reply {
            Reply::Applied { now, .. } => {
                let number = Some(StoreTime::from_micros(number));
                assert_eq!(*now, number, "the reply to another operation");
            }
            reply => assert!(self.store.panics.load(Ordering::Relaxed), "{reply:?}"),
        }
    }

    async fn submit(&self, name: u8) {
        let request = self.request(name);
        let number = number(&request);
        let mut submitted = pin!(self.batcher.submit(request));
        let mut reply = poll_times(&mut submitted, 1).await;
        self.queued(number);
        if reply.is_none() {
            reply = Some(submitted.await);
        }
        self.check(number, &reply.unwrap());
    }

    async fn submit_and_leave(&self, name: u8) {
        let request = self.request(name);
        let number = number(&request);
        let mut submitted = pin!(self.batcher.submit(request.clone()));
        let polls = thread_rng().gen_range(0..4);
        for _ in 0..polls {
            if poll_times(&mut submitted, 1).await.is_some() {
                return;
            }
            self.queued(number);
        }
        if self.store.mutation == Mutation::KeepsSender {
            self.batcher.lose_sender(&request);
        }
    }

    async fn post(&self, name: u8) {
        let request = self.request(name);
        let number = number(&request);
        let posted = self.batcher.post(request);
        self.queued(number);
        if thread_rng().gen_bool(0.5) {
            self.check(number, &reply_to(posted).await);
        }
    }

    async fn visit(self: Arc<Self>) {
        for _ in 0..OPERATIONS {
            let name = thread_rng().gen_range(NAMES);
            match thread_rng().gen_range(0..4) {
                0 => self.post(name).await,
                1 => self.submit_and_leave(name).await,
                _ => self.submit(name).await,
            }
        }
    }
}

/// Starts tasks. Returns a future that ends when each has returned or panicked.
fn start<F>(tasks: impl IntoIterator<Item = F>) -> impl Future<Output = ()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let spawn = |task: F| {
        let (running, ended) = oneshot::channel::<()>();
        Runtime.spawn(async move {
            let _running = running;
            task.await;
        });
        ended
    };
    let tasks: Vec<_> = tasks.into_iter().map(spawn).collect();
    async {
        for ended in tasks {
            drop(ended.await);
        }
    }
}

fn run(parallel_calls: u64, panics: bool, mutation: Mutation) -> usize {
    let world = World::new(parallel_calls, UNLIMITED, panics, mutation);
    block_on(async {
        let ended = start((0..TASKS).map(|_| Arc::clone(&world).visit()));
        // A caller that is no longer polled stops nobody.
        let mut stopped = pin!(world.batcher.submit(world.request(NAMES.start)));
        survived(poll_times(&mut stopped, 2)).await;
        ended.await;
    });
    // Every queue can still send.
    world.store.panics.store(false, Ordering::Relaxed);
    for name in NAMES {
        block_on(world.submit(name));
    }
    world.recorded().most_in_flight
}

/// Returns the largest result of many runs.
fn largest(run: impl Fn() -> usize + Clone + Send + Sync + 'static) -> usize {
    let largest = Arc::new(AtomicUsize::new(0));
    let result = Arc::clone(&largest);
    let run = move || {
        result.fetch_max(run(), Ordering::Relaxed);
    };
    shuttle::check_random(run.clone(), RUNS);
    shuttle::check_pct(run, RUNS, 3);
    largest.load(Ordering::Relaxed)
}

#[test]
fn a_call_at_a_time_keeps_the_order_of_operations() {
    assert_eq!(largest(|| run(1, false, Mutation::None)), 1);
}

#[test]
fn two_calls_at_a_time_keep_the_order_of_operations_on_a_name() {
    assert_eq!(largest(|| run(2, false, Mutation::None)), 2);
}

#[test]
fn a_panic_of_the_store_leaves_no_caller_waiting() {
    assert_eq!(largest(|| run(2, true, Mutation::None)), 2);
}

#[test]
#[should_panic(expected = "overtook")]
fn routes_without_regard_to_the_name_are_noticed() {
    shuttle::check_random(|| _ = run(1, false, Mutation::RoutesInTurn), RUNS);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_caller_that_takes_the_right_to_send_with_it_is_noticed() {
    shuttle::check_random(|| _ = run(2, false, Mutation::KeepsSender), RUNS);
}

/// Returns the size of the largest batch.
fn run_limited(callers_max: usize, posts: bool) -> usize {
    let world = World::new(1, callers_max, false, Mutation::None);
    block_on(start((0..TASKS).map(|task| {
        let world = Arc::clone(&world);
        async move {
            match posts && task > 0 {
                true => world.post(task).await,
                false => world.submit(if callers_max == 1 { 0 } else { task }).await,
            }
        }
    })));
    world.recorded().largest_batch
}

#[test]
fn callers_wait_in_order_up_to_a_limit_that_posted_operations_do_not_have() {
    assert_eq!(largest(|| run_limited(1, false)), 1);
    assert_eq!(largest(|| run_limited(2, false)), 2);
    assert_eq!(largest(|| run_limited(1, true)), usize::from(TASKS));
}
