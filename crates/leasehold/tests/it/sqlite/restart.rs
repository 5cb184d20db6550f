//! The clock: wall clocks that are set, machines that are restarted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold::clock::ManualClock;
use leasehold::store::sqlite::Machine;

use super::ear::Asker;
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
        let wall = Arc::clone(&self.wall);
        let machine = Machine {
            boot_id: self.boot_id.map(str::to_owned),
            clock: Arc::new(self.clock.clone()),
            skew: 0,
            wall: Arc::new(move || -> SystemTime {
                UNIX_EPOCH + Duration::from_secs(wall.load(Ordering::Relaxed))
            }),
        };
        SqliteStore::open_on(place.path(), machine, &OpenOptions::default())
            .await
            .unwrap()
    }
}

async fn left(store: &SqliteStore, name: &str) -> Option<Duration> {
    let entry = store.inspect(&key(name)).await.unwrap();
    entry.map(|entry| entry.left)
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
                    left: LONG,
                    place: None
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

    let after = Lab::new(Some("two"), TODAY);
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
    let store = Lab::new(Some("two"), 0).open(&place).await;
    let new = token(&store, acquire("once", lease(2), LONG)).await;
    assert!(new > old);
}

#[tokio::test]
async fn a_second_kernel_on_the_file_is_noticed_by_the_first() {
    let place = Place::new();
    let first = Lab::new(Some("one"), TODAY).open(&place).await;
    token(&first, acquire("a", lease(1), LONG)).await;
    let second = Lab::new(Some("two"), TODAY).open(&place).await;
    token(&second, acquire("a", lease(2), LONG)).await;
    for request in [renew("a", lease(1), LONG), acquire("b", lease(3), LONG)] {
        let error = rejected(&first, request).await;
        assert_eq!(error.kind(), ErrorKind::Store);
        assert!(error.to_string().contains("virtual machine"), "{error}");
    }
    assert!(first.inspect(&key("a")).await.is_err());
    // It does not take the file back.
    assert_eq!(left(&second, "a").await, Some(LONG));
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
