//! The clock: wall clocks that are set, machines that are restarted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold::__private::store::Machine;
use leasehold::{Cause, Client, Error, LeaseOptions};
use leasehold_core::{Annotation, Slot, Token};

use super::*;
use crate::fixture::with_options;
use crate::store_ext::StoreExt as _;

const HOUR: u64 = 3_600;
/// Half of a ttl, in seconds.
const HALF: u64 = TTL.as_secs() / 2;
const LONG: Duration = Duration::from_secs(HOUR);
/// Some day in 2024, in seconds.
const TODAY: u64 = 1_710_000_000;

/// The outcome of an acquisition of a lock that was acquired at the same instant.
const REFUSED: Outcome = Outcome::Refused {
    time_left: Some(TTL),
    queue_position: None,
};

/// A file on a machine whose clocks the test moves.
#[derive(Clone)]
struct TestMachine {
    fixture: Arc<FileFixture>,
    boot_id: Option<&'static str>,
    clock: ManualClock,
    wall: Arc<AtomicU64>,
}

impl TestMachine {
    fn new(boot_id: Option<&'static str>) -> Self {
        Self::started(Arc::new(FileFixture::new()), boot_id, TODAY, 500)
    }

    /// The machine after its next start, when all stores are closed.
    fn restarted(&self, boot_id: &'static str, wall: u64) -> Self {
        self.fixture.wait_until_closed();
        Self::started(Arc::clone(&self.fixture), Some(boot_id), wall, 20)
    }

    fn started(
        fixture: Arc<FileFixture>,
        boot_id: Option<&'static str>,
        wall: u64,
        uptime: u64,
    ) -> Self {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(uptime));
        let wall = Arc::new(wall.into());
        Self {
            fixture,
            boot_id,
            clock,
            wall,
        }
    }

    /// A container may have a boot id of its own. Its clock is that of the machine.
    fn container(&self, boot_id: &'static str) -> Self {
        let boot_id = Some(boot_id);
        Self {
            boot_id,
            ..self.clone()
        }
    }

    fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
        self.wall.fetch_add(seconds, Ordering::Relaxed);
    }

    fn set_wall(&self, wall: u64) {
        self.wall.store(wall, Ordering::Relaxed);
    }

    async fn open(&self) -> Arc<dyn Store> {
        self.try_open(LONG).await.unwrap()
    }

    async fn try_open(&self, timeout: Duration) -> Result<Arc<dyn Store>, Error> {
        let wall = Arc::clone(&self.wall);
        let machine = Machine {
            boot_id: self.boot_id.map(str::to_owned),
            clock: Arc::new(self.clock.clone()),
            skew: 0,
            wall: Arc::new(move || -> SystemTime {
                UNIX_EPOCH + Duration::from_secs(wall.load(Ordering::Relaxed))
            }),
        };
        let options = OpenOptions::default().connect_timeout(timeout);
        let opened = SqliteStore::open_on(self.fixture.path(), machine, &options).await;
        opened.map(|store| Arc::new(store) as Arc<dyn Store>)
    }
}

async fn left(store: &dyn Store, name: &str) -> Option<Duration> {
    let entry = store.inspect(&key(name)).await.unwrap();
    entry.map(|entry| entry.time_left)
}

#[tokio::test]
async fn setting_the_wall_clock_moves_no_lease() {
    let machine = TestMachine::new(Some("one"));
    let store = machine.open().await;
    granted(&*store, acquire("a", 1)).await;
    for wall in [TODAY + 24 * HOUR, TODAY - 24 * HOUR, 0] {
        machine.set_wall(wall);
        // Neither for a store that has the file open nor for a new one.
        for store in [&store, &machine.open().await] {
            assert_eq!(left(&**store, "a").await, Some(TTL));
            assert_eq!(applied(&**store, acquire("a", 2)).await, REFUSED);
        }
    }
    machine.advance(TTL.as_secs() - 1);
    assert_eq!(left(&*store, "a").await, Some(Duration::from_secs(1)));
    machine.advance(1);
    assert_eq!(left(&*store, "a").await, None);
    granted(&*store, acquire("a", 2)).await;
}

#[tokio::test]
async fn a_restart_of_the_machine_frees_every_lock_and_keeps_annotations_and_growing_tokens() {
    let machine = TestMachine::new(Some("one"));
    let client = StoreClient::listening(&machine.open().await, 11).await;
    let names = ["a", "b", "c"];
    let mut tokens = Vec::new();
    for name in names {
        tokens.push(client.acquire(name, 1).await);
    }
    let annotation = Annotation {
        lease: client.lease(1),
        token: Token::MAX,
        text: "complete".into(),
    };
    let (key, kind) = (key("c"), Slot::Period);
    let store = &client.store;
    let annotated = store.annotate(&key, &kind, &annotation, LONG * 24).await;
    assert_eq!(annotated.unwrap(), Ok(()));
    drop(store.observe(&key, &kind).await.unwrap());
    // A minimum hold also ends with the machine.
    let kept = client.own(lasting(release_after("c", 1), LONG));
    assert_eq!(client.apply(kept).await, Outcome::Released);
    assert_eq!(client.wait("a", 2).await, 0);
    machine.advance(HALF);
    let (_, stopped) = applied_at(&*client.store, client.own(renew("a", 1))).await;
    drop(client);

    // The battery of the clock was empty.
    let machine = machine.restarted("two", 20);
    let client = StoreClient::listening(&machine.open().await, 11).await;
    assert_eq!(client.store.held(&space()).await.unwrap(), []);
    for rows in ["members WHERE place IS NOT NULL", "members WHERE class = 6"] {
        assert_eq!(machine.fixture.count(rows), 0);
    }
    let observation = client.store.observe(&key, &kind).await.unwrap();
    assert_eq!(observation.annotation, Some(annotation));
    let (lost, started) = applied_at(&*client.store, client.own(renew("a", 1))).await;
    assert_eq!(lost, FREE);
    assert!(started > stopped);
    for (name, old) in names.iter().zip(&mut tokens) {
        let new = client.acquire(name, 2).await;
        assert!(new > *old);
        *old = new;
    }
    assert_eq!(client.wait("a", 3).await, 0);
    // The second store finds the restart handled.
    let second = machine.open().await;
    assert_eq!(left(&*second, "a").await, Some(TTL));
    drop((client, second));

    // The clock is right again after the next start.
    let machine = machine.restarted("three", TODAY + 12 * HOUR);
    let store = machine.open().await;
    let (_, now) = applied_at(&*store, renew("a", 2)).await;
    assert_eq!(now.as_micros(), (TODAY + 12 * HOUR) * 1_000_000);
    assert!(granted(&*store, acquire("a", 3)).await > tokens[0]);
}

/// Without the counter, which is deleted after some time without use, the clock alone keeps tokens growing, also over
/// a restart with a wrong clock.
#[tokio::test]
async fn tokens_grow_over_a_restart_after_their_counter_was_deleted() {
    let machine = TestMachine::new(Some("one"));
    let store = machine.open().await;
    let old = granted(&*store, acquire("once", 1)).await;
    applied(&*store, release("once", 1)).await;
    machine.advance(60);
    until_deleted(&machine.fixture, &*store, "heads WHERE name = 'once'").await;
    drop(store);
    let store = machine.restarted("two", 0).open().await;
    let new = granted(&*store, acquire("once", 2)).await;
    assert!(new > old);
}

#[tokio::test]
async fn containers_with_boot_ids_of_their_own_share_the_locks() {
    let machine = TestMachine::new(Some("one"));
    let first = machine.open().await;
    granted(&*first, acquire("a", 1)).await;
    let second = machine.container("two").open().await;
    assert_eq!(applied(&*second, acquire("a", 2)).await, REFUSED);
    granted(&*second, acquire("b", 2)).await;
    for (store, name, number) in [(&first, "a", 1), (&second, "b", 2)] {
        assert_eq!(applied(&**store, renew(name, number)).await, Outcome::Kept);
    }
    // The first one leaves, and the others continue.
    drop(first);
    let third = machine.container("three").open().await;
    for store in [&second, &third] {
        assert_eq!(left(&**store, "a").await, Some(TTL));
        assert_eq!(left(&**store, "b").await, Some(TTL));
    }
    applied(&*second, release("b", 2)).await;
    granted(&*third, acquire("b", 3)).await;
}

/// The processes of a killed runner may live a little longer than the runner.
#[tokio::test]
async fn a_single_container_waits_for_the_leases_of_dead_ones() {
    let machine = TestMachine::new(Some("one"));
    granted(&*machine.open().await, acquire("a", 1)).await;
    machine.fixture.wait_until_closed();
    machine.advance(HALF);
    let store = machine.container("two").open().await;
    assert_eq!(left(&*store, "a").await, Some(TTL / 2));
    drop(store);

    // After a restart of the machine no holder lives, although a container may have its old boot id again.
    let store = machine.restarted("two", TODAY + HOUR).open().await;
    assert_eq!(left(&*store, "a").await, None);
    granted(&*store, acquire("a", 2)).await;
}

/// It does not show that a holder lives.
#[tokio::test]
async fn a_lock_of_another_program_keeps_the_file_from_being_opened() {
    let machine = TestMachine::new(Some("one"));
    drop(machine.open().await);
    let machine = machine.restarted("two", TODAY + HOUR);
    let file = std::fs::File::open(machine.fixture.path()).unwrap();
    file.lock_shared().unwrap();
    let refused = machine.try_open(Duration::from_millis(500)).await;
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    file.unlock().unwrap();
    machine.open().await;
}

/// A second kernel does not see the locks of the first, and regards all its holders as dead.
fn open_under_another_kernel(fixture: &FileFixture) {
    let free = "UPDATE meta SET boot_id = 'another kernel';
         UPDATE heads SET value = '1 - free'";
    fixture.database().execute_batch(free).unwrap();
}

#[tokio::test]
async fn a_second_kernel_on_the_file_is_noticed_by_the_first() {
    let fixture = FileFixture::new();
    let first = fixture.open().await;
    granted(&*first, acquire("a", 1)).await;
    open_under_another_kernel(&fixture);
    for (request, kind) in [
        (renew("a", 1), ErrorKind::Lost),
        (release("a", 1), ErrorKind::Lost),
        (acquire("b", 3), ErrorKind::Store),
    ] {
        let error = rejected(&*first, request).await;
        assert_error(&error, kind, &["virtual machine"]);
    }
    assert!(first.inspect(&key("a")).await.is_err());
}

#[test]
fn a_holder_notices_that_a_second_kernel_has_freed_its_lock() {
    let fixture = FileFixture::new();
    // The client tries to release its lock until the runtime ends, before the directory is removed.
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let client = Client::builder().ttl(Duration::from_secs(15));
        let client = client.connect(&fixture.url()).await.unwrap();
        let held = client.mutex("held").unwrap().lock().await.unwrap();
        let fixed = client.mutex("fixed").unwrap();
        let fixed = with_options(&fixed, LeaseOptions::new().fixed(LONG));
        let fixed = fixed.lock().await.unwrap();
        open_under_another_kernel(&fixture);
        // Long before its time: at the next renewal.
        let cause = tokio::time::timeout(SOON, held.lost()).await.unwrap();
        assert_eq!(cause, Cause::Deleted);
        let error = fixed.release().await.unwrap_err();
        assert_error(&error, ErrorKind::Lost, &["virtual machine"]);
    });
    fixture.wait_until_closed();
}

#[tokio::test]
async fn without_a_boot_id_leases_follow_the_wall_clock_and_tokens_still_grow() {
    let machine = TestMachine::new(None);
    let mut last = granted(&*machine.open().await, acquire("a", 1)).await;
    let store = machine.open().await;
    assert_eq!(left(&*store, "a").await, Some(TTL));
    machine.set_wall(TODAY + HALF);
    assert_eq!(left(&*store, "a").await, Some(TTL / 2));
    machine.set_wall(TODAY + 2 * HOUR);
    assert_eq!(left(&*store, "a").await, None);
    for wall in [TODAY + 2 * HOUR, TODAY + HOUR, 0] {
        machine.set_wall(wall);
        let new = granted(&*store, acquire("a", wall)).await;
        assert!(new > last);
        last = new;
        applied(&*store, release("a", wall)).await;
    }
}
