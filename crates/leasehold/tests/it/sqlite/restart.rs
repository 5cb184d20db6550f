//! The clock: wall clocks that are set, machines that are restarted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold::clock::ManualClock;
use leasehold::store::sqlite::Machine;
use leasehold::{Cause, Client};

use super::event_log::Asker;
use super::*;

/// A machine whose clocks are ours.
#[derive(Clone)]
struct Lab {
    boot_id: Option<&'static str>,
    clock: ManualClock,
    wall: Arc<AtomicU64>,
}

const HOUR: u64 = 3_600;
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

    async fn open(&self, place: &Place) -> SqliteStore {
        SqliteStore::open_on(place.path(), self.machine(), &OpenOptions::default())
            .await
            .unwrap()
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

async fn left(store: &SqliteStore, name: &str) -> Option<Duration> {
    let entry = store.inspect(&key(name)).await.unwrap();
    entry.map(|entry| entry.time_left)
}

#[tokio::test]
async fn setting_the_wall_clock_moves_no_lease() {
    let place = Place::new();
    let lab = Lab::new(Some("one"), TODAY);
    lab.advance(500);
    let store = lab.open(&place).await;
    token(&store, acquire("a", lease(1), LONG)).await;
    for wall in [TODAY + 24 * HOUR, TODAY - 24 * HOUR, 0] {
        lab.set_wall(wall);
        // Neither for those who have the file open nor for those who come now.
        for store in [&store, &lab.open(&place).await] {
            assert_eq!(left(store, "a").await, Some(LONG));
            let (refused, _) = outcome(store, acquire("a", lease(2), LONG)).await;
            assert_eq!(
                refused,
                Outcome::Refused {
                    time_left: LONG,
                    queue_position: None
                }
            );
        }
    }
    lab.advance(HOUR - 1);
    assert_eq!(left(&store, "a").await, Some(Duration::from_secs(1)));
    lab.advance(1);
    assert_eq!(left(&store, "a").await, None);
    token(&store, acquire("a", lease(2), LONG)).await;
}

#[tokio::test]
async fn a_restart_of_the_machine_frees_every_lock_and_keeps_time_and_tokens_growing() {
    let place = Place::new();
    let before = Lab::new(Some("one"), TODAY);
    before.advance(5 * HOUR);
    let store = before.open(&place).await;
    let names = ["a", "b", "c"];
    let mut tokens = Vec::new();
    for name in names {
        tokens.push(token(&store, acquire(name, lease(1), LONG)).await);
    }
    outcome(&store, release("c", lease(1))).await;
    before.advance(HOUR / 2);
    let (_, stopped) = outcome(&store, renew("a", lease(1), LONG)).await;
    drop(store);
    place.wait_until_closed();

    // The battery of the clock was empty.
    let after = Lab::new(Some("two"), 0);
    after.advance(20);
    let store = after.open(&place).await;
    assert_eq!(store.list(&space("main")).await.unwrap(), []);
    let (lost, started) = outcome(&store, renew("a", lease(1), LONG)).await;
    assert_eq!(lost, Outcome::Lost(Loss::Gone));
    assert!(started > stopped);
    for (name, old) in names.iter().zip(&mut tokens) {
        let new = token(&store, acquire(name, lease(2), LONG)).await;
        assert!(new > *old);
        *old = new;
    }
    // Who comes second finds that the restart is dealt with.
    let second = after.open(&place).await;
    assert_eq!(left(&second, "a").await, Some(LONG));
    drop((store, second));
    place.wait_until_closed();

    // The clock is right again after the next start.
    let right = Lab::new(Some("three"), TODAY + 12 * HOUR);
    let store = right.open(&place).await;
    let (_, now) = outcome(&store, renew("a", lease(2), LONG)).await;
    assert_eq!(now.as_micros(), (TODAY + 12 * HOUR) * 1_000_000);
    assert!(token(&store, acquire("a", lease(3), LONG)).await > tokens[0]);
}

#[tokio::test]
async fn a_restart_of_the_machine_forgets_who_waited() {
    let place = Place::new();
    let before = Lab::new(Some("one"), TODAY);
    let store = Arc::new(before.open(&place).await) as Arc<dyn Store>;
    let asker = Asker::on(&store, 11).await;
    asker.take("a", 1).await;
    assert_eq!(asker.wait("a", 2).await, Some(0));
    assert_eq!(place.count("waiters"), 1);
    drop((store, asker));
    place.wait_until_closed();

    let after = Lab::new(Some("two"), TODAY + 60);
    let store = Arc::new(after.open(&place).await) as Arc<dyn Store>;
    assert_eq!(place.count("waiters"), 0);
    let asker = Asker::on(&store, 12).await;
    asker.take("a", 1).await;
    assert_eq!(asker.wait("a", 2).await, Some(0));
}

/// The counter of a name that nobody used for long is swept; the clock alone keeps its tokens
/// growing, also over a restart with a wrong clock.
#[tokio::test]
async fn tokens_grow_over_a_restart_after_their_counter_was_swept() {
    let place = Place::new();
    let before = Lab::new(Some("one"), TODAY);
    let store = before.open(&place).await;
    let old = token(&store, acquire("once", lease(1), LONG)).await;
    outcome(&store, release("once", lease(1))).await;
    before.advance(60);
    let mut sweeps = 0..2_000;
    while place.count("records WHERE name = 'once'") > 0 {
        assert!(sweeps.next().is_some(), "the record is never swept");
        outcome(&store, renew("other", lease(1), LONG)).await;
    }
    drop(store);
    place.wait_until_closed();
    let store = Lab::new(Some("two"), 0).open(&place).await;
    let new = token(&store, acquire("once", lease(2), LONG)).await;
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
    let place = Place::new();
    let host = Lab::new(Some("one"), TODAY);
    host.advance(500);
    let first = host.open(&place).await;
    token(&first, acquire("a", lease(1), LONG)).await;
    let container = in_a_container(&host, "two");
    let second = container.open(&place).await;
    let (refused, _) = outcome(&second, acquire("a", lease(2), LONG)).await;
    let left_there = Outcome::Refused {
        time_left: LONG,
        queue_position: None,
    };
    assert_eq!(refused, left_there);
    token(&second, acquire("b", lease(2), LONG)).await;
    for (store, name, number) in [(&first, "a", 1), (&second, "b", 2)] {
        let (renewed, _) = outcome(store, renew(name, lease(number), LONG)).await;
        assert_eq!(renewed, Outcome::Renewed);
    }
    // The one that came first leaves, and the others go on.
    drop(first);
    let third = in_a_container(&host, "three").open(&place).await;
    for store in [&second, &third] {
        assert_eq!(left(store, "a").await, Some(LONG));
        assert_eq!(left(store, "b").await, Some(LONG));
    }
    outcome(&second, release("b", lease(2))).await;
    token(&third, acquire("b", lease(3), LONG)).await;
}

/// What a killed runner has started may live a little longer than the runner.
#[tokio::test]
async fn a_container_that_is_alone_waits_for_the_leases_of_the_dead() {
    let place = Place::new();
    let host = Lab::new(Some("one"), TODAY);
    host.advance(500);
    let store = host.open(&place).await;
    token(&store, acquire("a", lease(1), LONG)).await;
    drop(store);
    place.wait_until_closed();
    host.advance(HOUR / 2);
    let container = in_a_container(&host, "two");
    let store = container.open(&place).await;
    assert_eq!(left(&store, "a").await, Some(LONG / 2));
    drop(store);
    place.wait_until_closed();

    // After a start of the machine nobody lives, though a container may have its old boot id again.
    let restarted = Lab::new(Some("two"), TODAY + HOUR);
    let store = restarted.open(&place).await;
    assert_eq!(left(&store, "a").await, None);
    token(&store, acquire("a", lease(2), LONG)).await;
}

/// It says nothing about who lives.
#[tokio::test]
async fn a_lock_of_another_program_keeps_the_file_from_being_opened() {
    let place = Place::new();
    let before = Lab::new(Some("one"), TODAY);
    before.advance(500);
    drop(before.open(&place).await);
    place.wait_until_closed();
    let file = std::fs::File::open(place.path()).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockShared).unwrap();
    let after = Lab::new(Some("two"), TODAY + HOUR);
    let options = OpenOptions::default().with_connect_timeout(Duration::from_millis(500));
    let refused = SqliteStore::open_on(place.path(), after.machine(), &options).await;
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    rustix::fs::flock(&file, rustix::fs::FlockOperation::Unlock).unwrap();
    after.open(&place).await;
}

/// A second kernel does not see the locks of the first: it takes everybody for dead.
fn open_under_another_kernel(place: &Place) {
    let free = "UPDATE meta SET boot_id = 'another kernel';
         UPDATE records SET client = NULL, number = NULL, count = NULL, expires_at = NULL";
    place.database().execute_batch(free).unwrap();
}

#[tokio::test]
async fn a_second_kernel_on_the_file_is_noticed_by_the_first() {
    let place = Place::new();
    let first = Lab::new(Some("one"), TODAY).open(&place).await;
    token(&first, acquire("a", lease(1), LONG)).await;
    open_under_another_kernel(&place);
    for (request, kind) in [
        (renew("a", lease(1), LONG), ErrorKind::Lost),
        (release("a", lease(1)), ErrorKind::Lost),
        (acquire("b", lease(3), LONG), ErrorKind::Store),
    ] {
        let error = rejected(&first, request).await;
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains("virtual machine"), "{error}");
    }
    assert!(first.inspect(&key("a")).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_learns_that_a_second_kernel_has_freed_its_lock() {
    let place = Place::new();
    let client = Client::builder().ttl(Duration::from_secs(1));
    let client = client.connect(&place.url()).await.unwrap();
    let held = client.mutex("held").unwrap().lock().await.unwrap();
    let fixed = client.mutex("fixed").unwrap().lease(LONG).unwrap();
    let fixed = fixed.lock().await.unwrap();
    open_under_another_kernel(&place);
    // Long before its time: at the next renewal.
    let cause = tokio::time::timeout(SOON, held.lost()).await.unwrap();
    assert_eq!(cause, Cause::Deleted);
    let error = fixed.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert!(error.to_string().contains("virtual machine"), "{error}");
}

#[tokio::test]
async fn without_a_boot_id_leases_follow_the_wall_clock_and_tokens_still_grow() {
    let place = Place::new();
    let lab = Lab::new(None, TODAY);
    let store = lab.open(&place).await;
    let mut last = token(&store, acquire("a", lease(1), LONG)).await;
    drop(store);
    let store = lab.open(&place).await;
    assert_eq!(left(&store, "a").await, Some(LONG));
    lab.set_wall(TODAY + HOUR / 2);
    assert_eq!(left(&store, "a").await, Some(LONG / 2));
    lab.set_wall(TODAY + 2 * HOUR);
    assert_eq!(left(&store, "a").await, None);
    for wall in [TODAY + 2 * HOUR, TODAY + HOUR, 0] {
        lab.set_wall(wall);
        let new = token(&store, acquire("a", lease(wall), LONG)).await;
        assert!(new > last);
        last = new;
        outcome(&store, release("a", lease(wall))).await;
    }
}

#[tokio::test]
async fn the_real_clock_is_near_the_wall_clock() {
    let place = Place::new();
    let store = place.open().await;
    let (_, now) = outcome(&*store, renew("a", lease(1), LONG)).await;
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let apart = wall.abs_diff(Duration::from_micros(now.as_micros()));
    assert!(apart < Duration::from_secs(5), "{apart:?}");
}
