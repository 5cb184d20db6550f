//! Every store replies and notifies by the rule, operation by operation, on random histories.

mod compare;
pub(crate) mod corrupting_store;
mod event_logs;
mod replies;
pub(crate) mod shares;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use leasehold::__private::store::{
    EtcdStore, MemoryStore, OpenOptions, PostgresStore, RedisStore, SqliteStore, Store,
    ZookeeperStore,
};
use leasehold::clock::ManualClock;
use leasehold_sim::history::Shape;
use leasehold_testkit::{EtcdCluster, PostgresServer, RedisServer, ZookeeperServer, temp_dir};

use self::compare::{Difference, Target, compare};
use self::corrupting_store::{CorruptingStore, Corruption};

/// How many histories each store is played, unless `LEASEHOLD_HISTORIES` has another number: half from fixed seeds, half from
/// fresh ones.
const HISTORIES: usize = 2_000;

/// The same for a store of documents, whose every change takes two round trips and a consensus.
const HISTORIES_OF_DOCUMENTS: usize = 300;

/// How many servers share them.
const SERVERS: usize = 3;

/// The tolerance for replies of a server: it reads its clock twice in a call, and may lose the processor in between. Its
/// clock is slow, so that it may do so for seconds.
const SLACK: Duration = Duration::from_millis(2);

/// How long replies, and notices from another thread or process, may take. Far more than they
/// do: only what never comes is waited for as long.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The number of histories in which a corrupting store must be detected.
const HISTORIES_TO_DETECT: usize = 3000;

#[test]
fn the_memory_store_follows_the_rule() {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(Arc::new(clock.clone()));
    play(compare(Target {
        step: &|step_ms| advance(&clock, step_ms),
        ..Target::new(&store)
    }));
}

#[test]
fn the_sqlite_store_follows_the_rule() {
    let clock = ManualClock::new();
    let directory = temp_dir();
    let path = directory.path().join("locks.db");
    play(async {
        let store = SqliteStore::open_with_clock(path, Arc::new(clock.clone()));
        compare(Target {
            step: &|step_ms| advance(&clock, step_ms),
            timeout: TIMEOUT,
            ..Target::new(&store.await.unwrap())
        })
        .await
    });
}

/// The clock of the server is moved, also back, while it runs on slowly.
#[test]
fn the_redis_store_follows_the_rule() {
    on_servers(|part| {
        let server = RedisServer::options().clock_shim().start();
        server.slow_clock();
        play(async {
            let store = RedisStore::open(&server.url(), &options()).await.unwrap();
            compare(Target {
                step: &|step_ms| server.step_clock(step_ms),
                shape: Shape::RunningBack,
                slack: SLACK,
                timeout: TIMEOUT,
                part,
                ..Target::new(&store)
            })
            .await
        });
    });
}

/// The same of a database.
#[test]
fn the_postgres_store_follows_the_rule() {
    on_servers(|part| {
        let server = PostgresServer::start_with_clock();
        server.slow_clock();
        play(async {
            let store = PostgresStore::open_url(&server.url(), &options()).await;
            compare(Target {
                step: &|step_ms| server.step_clock(step_ms),
                shape: Shape::RunningBack,
                histories: histories(HISTORIES / 4),
                slack: SLACK,
                timeout: TIMEOUT,
                part,
                ..Target::new(&store.unwrap())
            })
            .await
        });
    });
}

#[test]
fn the_etcd_store_follows_the_rule() {
    on_servers(|part| {
        let (cluster, clock) = (EtcdCluster::start(), ManualClock::new());
        play(async {
            let options = options().clock(Arc::new(clock.clone()));
            let store = EtcdStore::open_url(&cluster.url(), &options).await;
            compare_documents(&store.unwrap(), &clock, part).await
        });
    });
}

#[test]
fn the_zookeeper_store_follows_the_rule() {
    on_servers(|part| {
        let (server, clock) = (ZookeeperServer::start(), ManualClock::new());
        play(async {
            let options = options().clock(Arc::new(clock.clone()));
            let store = ZookeeperStore::open_url(&server.url(), &options).await;
            compare_documents(&store.unwrap(), &clock, part).await
        });
    });
}

/// The clock is that of the client, in which the rule runs.
async fn compare_documents(
    store: &dyn Store,
    clock: &ManualClock,
    part: (usize, usize),
) -> Result<(), Difference> {
    compare(Target {
        step: &|step_ms| advance(clock, step_ms),
        histories: histories(HISTORIES_OF_DOCUMENTS),
        timeout: TIMEOUT,
        part,
        ..Target::new(store)
    })
    .await
}

/// The number of histories in the environment, or this one.
fn histories(number: usize) -> usize {
    std::env::var("LEASEHOLD_HISTORIES").map_or(number, |number| number.parse().unwrap())
}

/// Plays each part of the histories on a server of its own. Most of the time passes in waiting for replies.
fn on_servers(play_part: impl Fn((usize, usize)) + Sync) {
    let play_part = &play_part;
    thread::scope(|scope| {
        for nth in 0..SERVERS {
            scope.spawn(move || play_part((nth, SERVERS)));
        }
    });
}

fn options() -> OpenOptions {
    OpenOptions::default().response_timeout(TIMEOUT)
}

/// Each corruption of a store that otherwise follows the rule is detected.
#[test]
fn every_corruption_of_a_store_is_detected() {
    for corruption in Corruption::ALL {
        let clock = ManualClock::new();
        let store =
            CorruptingStore::new(MemoryStore::with_clock(Arc::new(clock.clone())), corruption);
        let found = block_on(compare(Target {
            step: &|step_ms| advance(&clock, step_ms),
            shape: Shape::Running,
            slack: SLACK,
            histories: HISTORIES_TO_DETECT,
            ..Target::new(&store)
        }));
        assert!(found.is_err(), "{corruption:?} was not detected");
    }
}

/// Without this, a wrong clock would make all histories timeless.
#[test]
fn a_clock_that_is_not_moved_is_detected() {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(Arc::new(clock));
    let found = block_on(compare(Target {
        shape: Shape::Running,
        // The first one is always the same; its clock is moved.
        histories: 2,
        ..Target::new(&store)
    }));
    assert!(found.is_err());
}

fn play(comparison: impl Future<Output = Result<(), Difference>>) {
    if let Err(difference) = block_on(comparison) {
        panic!("{difference}");
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(future)
}

fn advance(clock: &ManualClock, step_ms: i64) {
    clock.advance(Duration::from_millis(step_ms.try_into().unwrap()));
}
