//! The memory of a held lease in its process.
//!
//! Bytes that were allocated are counted, so nothing else in the process or the machine plays a part. The
//! store's own records are counted first, by themselves, and taken off.

// Tests and their helpers fail by panicking. An allocator cannot be written without `unsafe`.
#![allow(clippy::unwrap_used, clippy::panic, unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::__private::store::{Key, Keyspace, MemoryStore, Request, Store};
use leasehold::clock::ManualClock;
use leasehold::{Client, Guard};
use leasehold_core::{Acquire, ClientId, LeaseId, Name, Namespace, Op, ScopeName, Ttl};

const LEASES: usize = 100_000;
/// The most that a lease may cost beside its guard and the store's record of it.
const BYTES_MAX: usize = 600;
const TTL: Duration = Duration::from_secs(30);

/// The system's allocator, with a count of what is allocated.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: each call is passed on as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocated() -> usize {
    ALLOCATED.load(Ordering::Relaxed)
}

/// Names of one length, about as long as names are.
fn name(index: usize) -> String {
    format!("customers/invoices/{index:08}")
}

fn space() -> Keyspace {
    let namespace = Namespace::parse("leasehold").unwrap();
    Keyspace::new(namespace, ScopeName::parse("default").unwrap())
}

fn acquire(key: Key, number: u64) -> Request {
    let lease = LeaseId {
        client: ClientId::from_random([1; 16]),
        number,
    };
    let acquire = Acquire::mutex(lease, Ttl::checked(TTL).unwrap());
    Request::new(key, Op::Acquire(acquire))
}

/// What the store keeps for each lease, its table included, without the name, which the client
/// also has to keep.
async fn bytes_of_the_store() -> usize {
    let store = MemoryStore::with_clock(Arc::new(ManualClock::new()));
    let space = space();
    let before = allocated();
    let mut names = 0;
    for index in 0..LEASES {
        let before = allocated();
        let key = space.key(Name::parse(&name(index)).unwrap());
        names += allocated() - before;
        let number = u64::try_from(index).unwrap();
        store.apply(vec![acquire(key, number)]).await;
    }
    allocated() - before - names
}

/// What a client and its guards keep for each lease, with the store's share.
async fn bytes_of_the_client() -> usize {
    let clock = ManualClock::new();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_clock(Arc::new(clock.clone())));
    let builder = Client::builder().ttl(TTL).clock(Arc::new(clock.clone()));
    let client = builder.build(store).unwrap();
    let mut guards = Vec::<Guard>::with_capacity(LEASES);
    let before = allocated();
    for index in 0..LEASES {
        let mutex = client.mutex(name(index)).unwrap();
        guards.push(mutex.lock().await.unwrap());
    }
    // Renewed once: what a renewal leaves behind also counts.
    clock.advance(TTL / 3);
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let bytes = allocated() - before;
    assert!(guards.iter().all(|guard| guard.state().is_held()));
    client.shutdown(TTL).await.unwrap();
    bytes
}

#[test]
fn a_held_lease_costs_at_most_600_bytes() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(async {
        let store = bytes_of_the_store().await;
        let client = bytes_of_the_client().await;
        let each = client.saturating_sub(store) / LEASES;
        assert!(each <= BYTES_MAX, "{each} bytes for each lease");
    });
}
