//! First come, first served.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::task::Poll;

use leasehold::{Client, LeaseId, Mutex};
use leasehold_core::Op;

use crate::fixture::{Fixture, fresh_name};
use crate::recording_store::RecordingStore;
use crate::waiters::poll_once;

/// The number of acquisitions.
const ACQUISITIONS: usize = 10_000;

/// Their number where each is a round trip to a server or a disk.
const ACQUISITIONS_AFAR: usize = 240;

/// Numbers the tasks that enter a local queue, in their order.
#[derive(Default)]
struct LocalOrder {
    next: StdMutex<usize>,
    served: AtomicUsize,
}

impl LocalOrder {
    /// Enters the local queue, and is served after all tasks before it.
    async fn pass(&self, mutex: &Mutex) {
        let mut locking = Box::pin(mutex.lock());
        let (number, first) = {
            let mut next = self.next.lock().unwrap();
            *next += 1;
            (*next - 1, poll_once(&mut locking))
        };
        let guard = match first {
            Poll::Ready(guard) => guard,
            Poll::Pending => locking.await,
        };
        let guard = guard.unwrap();
        assert_eq!(self.served.fetch_add(1, Ordering::SeqCst), number);
        guard.release().await.unwrap();
    }
}

/// 50 tasks acquire the lock repeatedly, always in the order of the local queue.
pub(super) async fn tasks_of_a_client_are_served_in_their_order(fixture: Fixture) {
    let mutex = fixture.mutex("order").await;
    let order = Arc::new(LocalOrder::default());
    let tasks = (0..50).map(|_| {
        let (mutex, order) = (mutex.clone(), Arc::clone(&order));
        tokio::spawn(async move {
            for _ in 0..ACQUISITIONS / 50 {
                order.pass(&mutex).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(order.served.load(Ordering::SeqCst), ACQUISITIONS);
}

/// Eight clients acquire the lock repeatedly. No lease is served before one that had its position before the
/// first was requested.
pub(super) async fn no_client_overtakes_the_queue(fixture: Fixture) {
    let acquisitions = match fixture {
        Fixture::Local(_) => ACQUISITIONS,
        _ => ACQUISITIONS_AFAR,
    };
    let name = fresh_name("fifo");
    let served = Arc::new(StdMutex::new(Vec::new()));
    let (mut recorders, mut tasks) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        let (client, recorder) = fixture.recorded(Client::builder()).await;
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
        recorders.push(recorder);
    }
    for task in tasks {
        task.await.unwrap();
    }
    let served = std::mem::take(&mut *served.lock().unwrap());
    assert_eq!(served.len(), acquisitions);
    assert!(served.is_sorted_by_key(|(_, token)| *token));
    let leases: Vec<_> = served.into_iter().map(|(lease, _)| lease).collect();
    let queued = check_order(&leases, &requests(&recorders));
    assert!(queued > acquisitions / 2, "only {queued} waited");
}

/// The first request of a lease, and the first reply with its position, if any.
type Requests = HashMap<LeaseId, (u64, Option<u64>)>;

fn requests(recorders: &[Arc<RecordingStore>]) -> Requests {
    let mut requests = Requests::new();
    for batch in recorders.iter().flat_map(|recorder| recorder.batches()) {
        for op in &batch.ops {
            if let Op::Acquire(acquire) = op {
                requests.entry(acquire.lease).or_insert((batch.came, None));
            }
        }
        for lease in batch.queued() {
            let (_, position) = requests.get_mut(&lease).unwrap();
            position.get_or_insert(batch.replied);
        }
    }
    requests
}

/// Checks that no lease was served before one that had its position before the first was requested. Returns the
/// number of leases with a position.
fn check_order(served: &[LeaseId], requests: &Requests) -> usize {
    // The first position of a later lease.
    let mut later = u64::MAX;
    let mut queued = 0;
    for lease in served.iter().rev() {
        let (came, position) = requests[lease];
        assert!(came < later, "{lease} overtook another");
        queued += usize::from(position.is_some());
        later = later.min(position.unwrap_or(u64::MAX));
    }
    queued
}
