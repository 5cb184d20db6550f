//! Every store answers and tells as the rule does, operation by operation, on random histories.

mod compare;
mod corrupting_store;
mod event_logs;

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::ManualClock;
use leasehold::store::MemoryStore;
#[cfg(feature = "sqlite")]
use leasehold::store::SqliteStore;
#[cfg(feature = "redis")]
use leasehold::store::{OpenOptions, RedisStore};
use leasehold_sim::history::Shape;
#[cfg(feature = "redis")]
use leasehold_testkit::RedisServer;

use self::compare::{Difference, Subject, compare};
use self::corrupting_store::{CorruptingStore, Corruption};

/// How many histories each store is played.
const HISTORIES: usize = 10_000;

/// By how much the server's answers may be off: it reads its clock twice in a call, and may lose the
/// processor in between. Leases are half a second away from any question.
#[cfg(feature = "redis")]
const REDIS_SLACK: Duration = Duration::from_millis(100);

/// How long a store that tells from another thread or process may take for that. Far more than it
/// does: only what never comes is waited for as long.
#[cfg(any(feature = "sqlite", feature = "redis"))]
const PATIENCE: Duration = Duration::from_secs(10);

/// How many histories a store that lies may survive.
const HISTORIES_TO_CONVICT: usize = 500;

#[test]
fn the_memory_store_answers_as_the_rule() {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(Arc::new(clock.clone()));
    play(compare(Subject {
        store: &store,
        step: &|step_ms| advance(&clock, step_ms),
        shape: Shape::Standing,
        slack: Duration::ZERO,
        patience: Duration::ZERO,
        histories: HISTORIES,
    }));
}

#[cfg(feature = "sqlite")]
#[test]
fn the_sqlite_store_answers_as_the_rule() {
    let clock = ManualClock::new();
    // In memory where the system has a folder for that: answers are compared here, not disks.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let folder = folder.unwrap();
    let path = folder.path().join("locks.db");
    play(async {
        let store = SqliteStore::open_with_clock(path, Arc::new(clock.clone()));
        compare(Subject {
            store: &store.await.unwrap(),
            step: &|step_ms| advance(&clock, step_ms),
            shape: Shape::Standing,
            slack: Duration::ZERO,
            patience: PATIENCE,
            histories: HISTORIES,
        })
        .await
    });
}

/// The clock of the server is moved, also back, while it runs on.
#[cfg(feature = "redis")]
#[test]
fn the_redis_store_answers_as_the_rule() {
    let server = RedisServer::options().clock_shim().start();
    let options = OpenOptions::default();
    play(async {
        compare(Subject {
            store: &RedisStore::open(&server.url(), &options).await.unwrap(),
            step: &|step_ms| server.step_clock(step_ms),
            shape: Shape::RunningBack,
            slack: REDIS_SLACK,
            patience: PATIENCE,
            histories: HISTORIES,
        })
        .await
    });
}

/// Shows that the comparison can fail: each corruption of a store that otherwise follows the rule is
/// found out.
#[test]
fn a_store_that_lies_is_found_out() {
    for corruption in Corruption::ALL {
        let clock = ManualClock::new();
        let store =
            CorruptingStore::new(MemoryStore::with_clock(Arc::new(clock.clone())), corruption);
        let found = block_on(compare(Subject {
            store: &store,
            step: &|step_ms| advance(&clock, step_ms),
            shape: Shape::Running,
            slack: Duration::from_millis(2),
            patience: Duration::ZERO,
            histories: HISTORIES_TO_CONVICT,
        }));
        assert!(found.is_err(), "{corruption:?} was believed");
    }
}

/// A clock that the store was not told of would make every history one without time.
#[test]
fn a_clock_that_is_not_moved_is_found_out() {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(Arc::new(clock));
    let found = block_on(compare(Subject {
        store: &store,
        step: &|_| {},
        shape: Shape::Running,
        slack: Duration::ZERO,
        patience: Duration::ZERO,
        // The first one is always the same; its clock is moved.
        histories: 2,
    }));
    assert!(found.is_err());
}

fn play(comparison: impl Future<Output = Result<(), Difference>>) {
    if let Err(difference) = block_on(comparison) {
        panic!("{difference}");
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

fn advance(clock: &ManualClock, step_ms: i64) {
    clock.advance(Duration::from_millis(step_ms.try_into().unwrap()));
}
