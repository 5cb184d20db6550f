//! First come, first served.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::task::Poll;

use leasehold::{Client, Guard, LeaseId, Mutex, Result};
use leasehold_core::Op;

use crate::fixture::{Fixture, fresh_name};
use crate::recording_store::RecordingStore;
use crate::waiters::{in_line, poll_once, soon};

/// How many acquisitions are watched.
const ACQUISITIONS: usize = 10_000;

/// How many where each costs a round trip to a server or a disk.
const ACQUISITIONS_AFAR: usize = 1_000;

/// Gives numbers to those who come to a line, in the order in which they do.
#[derive(Default)]
struct Turnstile {
    next: StdMutex<usize>,
    served: AtomicUsize,
}

type Locking = Pin<Box<dyn Future<Output = Result<Guard>> + Send>>;

impl Turnstile {
    /// Joins the line. The future was polled once; what came of it comes with it.
    fn join(&self, mutex: &Mutex) -> (usize, Locking, Poll<Result<Guard>>) {
        let mutex = mutex.clone();
        let mut locking: Locking = Box::pin(async move { mutex.lock().await });
        let mut next = self.next.lock().unwrap();
        let number = *next;
        *next += 1;
        let first = poll_once(&mut locking);
        (number, locking, first)
    }

    /// Comes to the line, and is served when all are who came before.
    async fn pass(&self, mutex: &Mutex) {
        let (number, locking, first) = self.join(mutex);
        let guard = match first {
            Poll::Ready(guard) => guard,
            Poll::Pending => locking.await,
        };
        let guard = guard.unwrap();
        assert_eq!(self.served.fetch_add(1, Ordering::SeqCst), number);
        guard.release().await.unwrap();
    }
}

/// 50 tasks take the lock over and over. They are served in the order in which they came, each time.
pub(super) async fn tasks_of_a_client_are_served_in_the_order_they_came(fixture: Fixture) {
    let mutex = fixture.client().await.mutex(fresh_name("order")).unwrap();
    let turnstile = Arc::new(Turnstile::default());
    let tasks = (0..50).map(|_| {
        let (mutex, turnstile) = (mutex.clone(), Arc::clone(&turnstile));
        tokio::spawn(async move {
            for _ in 0..ACQUISITIONS / 50 {
                turnstile.pass(&mutex).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(turnstile.served.load(Ordering::SeqCst), ACQUISITIONS);
}

pub(super) async fn clients_are_served_in_the_order_of_the_queue(fixture: Fixture) {
    let name = fresh_name("queue");
    let holder = fixture.client().await.mutex(&name).unwrap();
    let mut last = holder.lock().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..5 {
        let (client, recorder) = fixture.tapped(Client::builder()).await;
        waiters.push(in_line(&client.mutex(&name).unwrap()));
        recorder.until_queued(1).await;
    }
    for _ in 0..5 {
        let next = waiters.remove(0);
        let token = last.token();
        last.release().await.unwrap();
        last = soon(next).await;
        assert!(last.token() > token);
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    }
    last.release().await.unwrap();
}

/// Eight clients take the lock over and over. Nobody is served before one who was told its place in
/// the queue before the other asked.
pub(super) async fn nobody_overtakes_the_queue(fixture: Fixture) {
    let acquisitions = match fixture {
        Fixture::Memory(_) => ACQUISITIONS,
        _ => ACQUISITIONS_AFAR,
    };
    let name = fresh_name("fifo");
    let served = Arc::new(StdMutex::new(Vec::new()));
    let (mut taps, mut tasks) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        let (client, recorder) = fixture.tapped(Client::builder()).await;
        let (mutex, served) = (client.mutex(&name).unwrap(), Arc::clone(&served));
        tasks.push(tokio::spawn(async move {
            for _ in 0..acquisitions / 8 {
                let guard = mutex.lock().await.unwrap();
                served
                    .lock()
                    .unwrap()
                    .push((guard.lease_id(), guard.token()));
                guard.release().await.unwrap();
            }
        }));
        taps.push(recorder);
    }
    for task in tasks {
        task.await.unwrap();
    }
    let served = std::mem::take(&mut *served.lock().unwrap());
    assert_eq!(served.len(), acquisitions);
    assert!(served.is_sorted_by_key(|(_, token)| *token));
    let leases: Vec<_> = served.into_iter().map(|(lease, _)| lease).collect();
    let queued = judge_order(&leases, &asked(&taps));
    assert!(queued > acquisitions / 2, "only {queued} waited");
}

/// When a lease asked first, and when it was first told its place, if it was.
type Asked = HashMap<LeaseId, (u64, Option<u64>)>;

fn asked(taps: &[Arc<RecordingStore>]) -> Asked {
    let mut asked = Asked::new();
    for batch in taps.iter().flat_map(|recorder| recorder.batches()) {
        for op in &batch.ops {
            if let Op::Acquire { lease, .. } = op {
                asked.entry(*lease).or_insert((batch.came, None));
            }
        }
        for lease in batch.queued() {
            let (_, told) = asked.get_mut(&lease).unwrap();
            told.get_or_insert(batch.answered);
        }
    }
    asked
}

/// Checks that nobody was served before one whose place was told before it asked. Answers how many
/// were told a place.
fn judge_order(served: &[LeaseId], asked: &Asked) -> usize {
    let mut first_told_of_the_later = u64::MAX;
    let mut queued = 0;
    for lease in served.iter().rev() {
        let (came, told) = asked[lease];
        assert!(came < first_told_of_the_later, "{lease} overtook another");
        queued += usize::from(told.is_some());
        first_told_of_the_later = first_told_of_the_later.min(told.unwrap_or(u64::MAX));
    }
    queued
}
