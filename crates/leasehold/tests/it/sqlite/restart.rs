//! The clock: wall clocks that are set, machines that are restarted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold::store::Machine;
use leasehold::{Cause, Client};

use super::*;

/// A machine whose clocks are ours.
#[derive(Clone)]
struct Lab {
    boot_id: Option<&'static str>,
    clock: ManualClock,
    wall: Arc<AtomicU64>,
}

const HOUR: u64 = 3_600;
/// Half of a ttl, in seconds.
const HALF: u64 = TTL.as_secs() / 2;
const LONG: Duration = Duration::from_secs(HOUR);
/// Some day in 2024, in seconds.
const TODAY: u64 = 1_710_000_000;

impl Lab {
    fn new(boot_id: Option<&'static str>, wall: u64) -> Self {
        Self {
            boot_id,
            clock: ManualClock::new(),
            wall: Arc::new(AtomicU64::new(wall)),
        }
    }

    fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
        self.wall.fetch_add(seconds, Ordering::Relaxed);
    }

    fn set_wall(&self, wall: u64) {
        self.wall.store(wall, Ordering::Relaxed);
    }

    async fn open(&self, fixture: &FileFixture) -> SqliteStore {
        let options = OpenOptions::default();
        let opened = SqliteStore::open_on(fixture.path(), self.machine(), &options);
        opened.await.unwrap()
    }

    fn machine(&self) -> Machine {
        let wall = Arc::clone(&self.wall);
        Machine {
            boot_id: self.boot_id.map(str::to_owned),
            clock: Arc::new(self.clock.clone()),
            skew: 0,
            wall: Arc::new(move || -> SystemTime {
                UNIX_EPOCH + Duration::from_secs(wall.load(Ordering::Relaxed))
            }),
        }
    }
}

/// The outcome of an acquisition of a lock that was acquired at the same instant.
const REFUSED: Outcome = Outcome::Refused {
    time_left: TTL,
    queue_position: None,
};

async fn left(store: &SqliteStore, name: &str) -> Option<Duration> {
    let entry = store.inspect(&key(name)).await.unwrap();
    entry.map(|entry| entry.time_left)
}

#[tokio::test]
async fn setting_the_wall_clock_moves_no_lease() {
    let fixture = FileFixture::new();
    let lab = Lab::new(Some("one"), TODAY);
    lab.advance(500);
    let store = lab.open(&fixture).await;
    granted(&store, acquire("a", 1)).await;
    for wall in [TODAY + 24 * HOUR, TODAY - 24 * HOUR, 0] {
        lab.set_wall(wall);
        // Neither for a store that has the file open nor for a new one.
        for store in [&store, &lab.open(&fixture).await] {
            assert_eq!(left(store, "a").await, Some(TTL));
            let refused = applied(store, acquire("a", 2)).await;
            assert_eq!(refused, REFUSED);
        }
    }
    lab.advance(TTL.as_secs() - 1);
    assert_eq!(left(&store, "a").await, Some(Duration::from_secs(1)));
    lab.advance(1);
    assert_eq!(left(&store, "a").await, None);
    granted(&store, acquire("a", 2)).await;
}

#[tokio::test]
async fn a_restart_of_the_machine_frees_every_lock_and_keeps_time_and_tokens_growing() {
    let fixture = FileFixture::new();
    let before = Lab::new(Some("one"), TODAY);
    before.advance(5 * HOUR);
    let store = before.open(&fixture).await;
    let names = ["a", "b", "c"];
    let mut tokens = Vec::new();
    for name in names {
        tokens.push(granted(&store, acquire(name, 1)).await);
    }
    applied(&store, release("c", 1, 0)).await;
    before.advance(HALF);
    let (_, stopped) = applied_at(&store, renew("a", 1)).await;
    drop(store);
    fixture.wait_until_closed();

    // The battery of the clock was empty.
    let after = Lab::new(Some("two"), 0);
    after.advance(20);
    let store = after.open(&fixture).await;
    assert_eq!(store.list(&space()).await.unwrap(), []);
    let (lost, started) = applied_at(&store, renew("a", 1)).await;
    assert_eq!(lost, Outcome::Lost(Loss::Gone));
    assert!(started > stopped);
    for (name, old) in names.iter().zip(&mut tokens) {
        let new = granted(&store, acquire(name, 2)).await;
        assert!(new > *old);
        *old = new;
    }
    // The second store finds the restart handled.
    let second = after.open(&fixture).await;
    assert_eq!(left(&second, "a").await, Some(TTL));
    drop((store, second));
    fixture.wait_until_closed();

    // The clock is right again after the next start.
    let right = Lab::new(Some("three"), TODAY + 12 * HOUR);
    let store = right.open(&fixture).await;
    let (_, now) = applied_at(&store, renew("a", 2)).await;
    assert_eq!(now.as_micros(), (TODAY + 12 * HOUR) * 1_000_000);
    assert!(granted(&store, acquire("a", 3)).await > tokens[0]);
}

#[tokio::test]
async fn a_restart_of_the_machine_empties_the_queues() {
    let fixture = FileFixture::new();
    let before = Lab::new(Some("one"), TODAY);
    let store = Arc::new(before.open(&fixture).await) as Arc<dyn Store>;
    let client = StoreClient::listening(&store, 11).await;
    client.acquire("a", 1).await;
    assert_eq!(client.wait("a", 2).await, 0);
    assert_eq!(fixture.count("waiters"), 1);
    drop((store, client));
    fixture.wait_until_closed();

    let after = Lab::new(Some("two"), TODAY + 60);
    let store = Arc::new(after.open(&fixture).await) as Arc<dyn Store>;
    assert_eq!(fixture.count("waiters"), 0);
    let client = StoreClient::listening(&store, 12).await;
    client.acquire("a", 1).await;
    assert_eq!(client.wait("a", 2).await, 0);
}

/// Without the counter, which is deleted after some time without use, the clock alone keeps tokens growing, also over
/// a restart with a wrong clock.
#[tokio::test]
async fn tokens_grow_over_a_restart_after_their_counter_was_deleted() {
    let fixture = FileFixture::new();
    let before = Lab::new(Some("one"), TODAY);
    let store = before.open(&fixture).await;
    let old = granted(&store, acquire("once", 1)).await;
    applied(&store, release("once", 1, 0)).await;
    before.advance(60);
    until_collected(&fixture, &store, "once").await;
    drop(store);
    fixture.wait_until_closed();
    let store = Lab::new(Some("two"), 0).open(&fixture).await;
    let new = granted(&store, acquire("once", 2)).await;
    assert!(new > old);
}

/// A container may have a boot id of its own. Its clock is that of the machine.
fn in_a_container(lab: &Lab, boot_id: &'static str) -> Lab {
    Lab {
        boot_id: Some(boot_id),
        ..lab.clone()
    }
}

#[tokio::test]
async fn containers_with_boot_ids_of_their_own_share_the_locks() {
    let fixture = FileFixture::new();
    let host = Lab::new(Some("one"), TODAY);
    host.advance(500);
    let first = host.open(&fixture).await;
    granted(&first, acquire("a", 1)).await;
    let container = in_a_container(&host, "two");
    let second = container.open(&fixture).await;
    let refused = applied(&second, acquire("a", 2)).await;
    assert_eq!(refused, REFUSED);
    granted(&second, acquire("b", 2)).await;
    for (store, name, number) in [(&first, "a", 1), (&second, "b", 2)] {
        let renewed = applied(store, renew(name, number)).await;
        assert_eq!(renewed, Outcome::Renewed);
    }
    // The one that came first leaves, and the others go on.
    drop(first);
    let third = in_a_container(&host, "three").open(&fixture).await;
    for store in [&second, &third] {
        assert_eq!(left(store, "a").await, Some(TTL));
        assert_eq!(left(store, "b").await, Some(TTL));
    }
    applied(&second, release("b", 2, 0)).await;
    granted(&third, acquire("b", 3)).await;
}

/// The processes of a killed runner may live a little longer than the runner.
#[tokio::test]
async fn a_single_container_waits_for_the_leases_of_dead_ones() {
    let fixture = FileFixture::new();
    let host = Lab::new(Some("one"), TODAY);
    host.advance(500);
    let store = host.open(&fixture).await;
    granted(&store, acquire("a", 1)).await;
    drop(store);
    fixture.wait_until_closed();
    host.advance(HALF);
    let container = in_a_container(&host, "two");
    let store = container.open(&fixture).await;
    assert_eq!(left(&store, "a").await, Some(TTL / 2));
    drop(store);
    fixture.wait_until_closed();

    // After a restart of the machine no holder lives, although a container may have its old boot id again.
    let restarted = Lab::new(Some("two"), TODAY + HOUR);
    let store = restarted.open(&fixture).await;
    assert_eq!(left(&store, "a").await, None);
    granted(&store, acquire("a", 2)).await;
}

/// It does not show that a holder lives.
#[tokio::test]
async fn a_lock_of_another_program_keeps_the_file_from_being_opened() {
    let fixture = FileFixture::new();
    let before = Lab::new(Some("one"), TODAY);
    before.advance(500);
    drop(before.open(&fixture).await);
    fixture.wait_until_closed();
    let file = std::fs::File::open(fixture.path()).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockShared).unwrap();
    let after = Lab::new(Some("two"), TODAY + HOUR);
    let options = OpenOptions::default().connect_timeout(Duration::from_millis(500));
    let refused = SqliteStore::open_on(fixture.path(), after.machine(), &options).await;
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    rustix::fs::flock(&file, rustix::fs::FlockOperation::Unlock).unwrap();
    after.open(&fixture).await;
}

/// A second kernel does not see the locks of the first, and regards all its holders as dead.
fn open_under_another_kernel(fixture: &FileFixture) {
    let free = "UPDATE meta SET boot_id = 'another kernel';
         UPDATE records SET client = NULL, number = NULL, count = NULL, expires_at = NULL";
    fixture.database().execute_batch(free).unwrap();
}

#[tokio::test]
async fn a_second_kernel_on_the_file_is_noticed_by_the_first() {
    let fixture = FileFixture::new();
    let first = Lab::new(Some("one"), TODAY).open(&fixture).await;
    granted(&first, acquire("a", 1)).await;
    open_under_another_kernel(&fixture);
    for (request, kind) in [
        (renew("a", 1), ErrorKind::Lost),
        (release("a", 1, 0), ErrorKind::Lost),
        (acquire("b", 3), ErrorKind::Store),
    ] {
        let error = rejected(&first, request).await;
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains("virtual machine"), "{error}");
    }
    assert!(first.inspect(&key("a")).await.is_err());
}

#[test]
fn a_holder_notices_that_a_second_kernel_has_freed_its_lock() {
    let fixture = FileFixture::new();
    // The client tries to release its lock until the runtime ends, before the directory is removed.
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let client = Client::builder().ttl(Duration::from_secs(3));
        let client = client.connect(&fixture.url()).await.unwrap();
        let held = client.mutex("held").unwrap().lock().await.unwrap();
        let fixed = client.mutex("fixed").unwrap().lease(LONG).unwrap();
        let fixed = fixed.lock().await.unwrap();
        open_under_another_kernel(&fixture);
        // Long before its time: at the next renewal.
        let cause = tokio::time::timeout(SOON, held.lost()).await.unwrap();
        assert_eq!(cause, Cause::Deleted);
        let error = fixed.release().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        assert!(error.to_string().contains("virtual machine"), "{error}");
    });
    fixture.wait_until_closed();
}

#[tokio::test]
async fn without_a_boot_id_leases_follow_the_wall_clock_and_tokens_still_grow() {
    let fixture = FileFixture::new();
    let lab = Lab::new(None, TODAY);
    let store = lab.open(&fixture).await;
    let mut last = granted(&store, acquire("a", 1)).await;
    drop(store);
    let store = lab.open(&fixture).await;
    assert_eq!(left(&store, "a").await, Some(TTL));
    lab.set_wall(TODAY + HALF);
    assert_eq!(left(&store, "a").await, Some(TTL / 2));
    lab.set_wall(TODAY + 2 * HOUR);
    assert_eq!(left(&store, "a").await, None);
    for wall in [TODAY + 2 * HOUR, TODAY + HOUR, 0] {
        lab.set_wall(wall);
        let new = granted(&store, acquire("a", wall)).await;
        assert!(new > last);
        last = new;
        applied(&store, release("a", wall, 0)).await;
    }
}

#[tokio::test]
async fn the_real_clock_is_near_the_wall_clock() {
    let fixture = FileFixture::new();
    let store = fixture.open().await;
    let (_, now) = applied_at(&*store, renew("a", 1)).await;
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let apart = wall.abs_diff(Duration::from_micros(now.as_micros()));
    assert!(apart < Duration::from_secs(5), "{apart:?}");
}
