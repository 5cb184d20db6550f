//! A read-write lock of one client under a model checker.
//!
//! Tasks read and write, leave before they have the lock, and release it or drop it, while the windows end in which
//! readers join a lease. In every order, a writer is alone, each task that stays is served, which the checker would
//! report as a deadlock, and nothing is left at the end.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Access, Claim, HoldId};
use shuttle::future::{block_on, spawn, yield_now};
use shuttle::rand::{Rng, thread_rng};

use super::super::Driver;
use super::super::active_lease::ActiveLease;
use super::super::hold::Hold;
use super::super::primitives::{Mutex, lock};
use super::recording_store::RecordingStore;
use super::shuttle_client::{ModelClock, acquire, check_pct, check_random, driver, stop};
use super::{a_while, ended};
use crate::clock::Clock;

const RUNS: usize = 400;
const TASKS: usize = 4;

/// Short beside a window, and beside a ttl in all.
const STEP: Duration = Duration::from_millis(4);

struct World {
    clock: Arc<ModelClock>,
    driver: Arc<Driver>,
    /// The holds of the tasks.
    inside: Mutex<Vec<Inside>>,
}

type Inside = (Access, Arc<ActiveLease>, HoldId);

impl World {
    /// Checks that a writer is alone. A hold that is lost does not count.
    fn enter(&self, access: Access, hold: &Hold) {
        let mut inside = lock(&self.inside);
        inside.push((access, Arc::clone(&hold.lease), hold.id));
        let now = self.clock.now();
        let held = inside.iter();
        let held = held.filter(|(_, lease, hold)| !lease.state(*hold, now).is_lost());
        let (mut readers, mut writers) = (0, 0);
        for (access, ..) in held {
            match access {
                Access::Write => writers += 1,
                _ => readers += 1,
            }
        }
        assert!(
            writers == 0 || (readers, writers) == (0, 1),
            "{readers} readers and {writers} writers"
        );
    }

    fn leave(&self, hold: &Hold) {
        let is_other = |it: &Inside| !Arc::ptr_eq(&it.1, &hold.lease) || it.2 != hold.id;
        lock(&self.inside).retain(is_other);
    }

    /// One task, which reads twice or writes once.
    async fn visit(self: Arc<Self>) {
        let writes = thread_rng().gen_bool(0.3);
        let (access, times) = match writes {
            true => (Access::Write, 1),
            false => (Access::Read, 2),
        };
        for _ in 0..times {
            a_while().await;
            let claim = Claim::Access(access);
            let Some(hold) = acquire(&self.driver, 0, claim, 0.3).await else {
                continue;
            };
            self.enter(access, &hold);
            a_while().await;
            self.leave(&hold);
            match thread_rng().gen_bool(0.3) {
                true => drop(hold),
                // Lost or not.
                false => drop(hold.release().await),
            }
        }
    }
}

fn run() {
    let clock = Arc::new(ModelClock::default());
    let store = RecordingStore::new(Arc::clone(&clock) as Arc<dyn Clock>, false);
    let world = Arc::new(World {
        driver: driver(&store, &clock),
        clock,
        inside: Mutex::default(),
    });
    let ticking = Arc::clone(&world.clock);
    let time = spawn(async move {
        loop {
            ticking.go_on(STEP);
            yield_now().await;
        }
    });
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| spawn(Arc::clone(&world).visit()))
        .collect();
    block_on(async {
        ended(tasks).await;
        // The tasks that keep shared leases, and those that release dropped ones.
        while Arc::strong_count(&world.driver) > 1 {
            yield_now().await;
        }
        let state = format!("{:?}", world.driver);
        assert!(state.contains("queues: 0"), "{state}");
        assert!(
            state.contains("Shares { leases: 0, readers: 0 }"),
            "{state}"
        );
        time.abort();
        stop(&world.driver.renewer).await;
    });
}

#[test]
fn a_writer_is_alone_and_nothing_is_left() {
    check_random(run, RUNS);
    check_pct(run, RUNS, 3);
}
