//! Holders and waiters that release, die and are stopped.

use std::time::{Duration, Instant};

use leasehold::Mutex;
use tokio::runtime::Runtime;

use super::child::{Child, TTL};
use crate::fixture::{Fixture, fresh_name};
use crate::waiters::SOON;

/// Less than the acceptance ttl.
const AT_ONCE: Duration = Duration::from_secs(5);

/// The time in which a waiter has to accept its grant.
const ACCEPTANCE: Duration = Duration::from_secs(3);

/// The first renewal after a grant comes later than this.
const FIRST_RENEWAL_MIN: Duration = Duration::from_millis(800);

/// What timers and a busy machine may add.
const SPARE: Duration = Duration::from_secs(12);

/// Processes that want one lock, and an operator.
struct Scenario {
    runtime: Runtime,
    operator: Mutex,
    children: Vec<Child>,
    /// The last token.
    last: u64,
}

impl Scenario {
    /// The first child holds the lock, the others wait in their order.
    fn start(fixture: &Fixture, children: usize) -> Self {
        let name = fresh_name("deaths");
        let runtime = Runtime::new().unwrap();
        let operator = runtime.block_on(async { fixture.client().await.mutex(&name).unwrap() });
        let children = (0..children).map(|_| Child::start(fixture, &name));
        let children: Vec<_> = children.collect();
        let last = children[0].acquire();
        for child in &children[1..] {
            child.execute("lock", "queued");
        }
        Self {
            runtime,
            operator,
            children,
            last,
        }
    }

    fn kill(&mut self, child: usize) {
        self.children.remove(child).kill();
    }

    /// Waits until a child holds the lock.
    #[track_caller]
    fn acquired(&mut self, child: usize, timeout: Duration) {
        let token = self.children[child].acquired(timeout);
        assert!(token > self.last, "{token} after {}", self.last);
        self.last = token;
    }

    /// The last holder releases the lock, which is free then.
    fn end(self, holder: usize) {
        self.children[holder].release();
        let lock = self.runtime.block_on(self.operator.inspect());
        assert_eq!(lock.unwrap(), None);
    }
}

/// The next process is granted a lock that is released, whose holder has died, or that an operator has revoked.
fn the_next_is_served(fixture: &Fixture) {
    let mut scenario = Scenario::start(fixture, 5);
    let begun = Instant::now();
    scenario.children[0].release();
    scenario.acquired(1, AT_ONCE);
    scenario.children[2].assert_waiting();

    scenario.kill(1);
    // A holder that has not renewed yet has the ttl for acceptance. A busy machine may have let it renew.
    let ttl = match begun.elapsed() < FIRST_RENEWAL_MIN {
        true => ACCEPTANCE,
        false => TTL,
    };
    scenario.acquired(1, ttl + SPARE);
    scenario.children[2].assert_waiting();

    let found = scenario.runtime.block_on(scenario.operator.revoke());
    assert_eq!(found.unwrap().unwrap().token.unwrap().get(), scenario.last);
    scenario.acquired(2, AT_ONCE);
    let outcome = scenario.children[1].execute("release", "released");
    assert_eq!(outcome, "Lost");
    scenario.children[3].assert_waiting();

    scenario.children[2].release();
    scenario.acquired(3, AT_ONCE);
    scenario.end(3);
}

/// A stopped waiter delays the others by three seconds, and notices its loss when it is resumed.
fn a_stopped_waiter_is_passed_over(fixture: &Fixture) {
    let mut scenario = Scenario::start(fixture, 3);
    scenario.children[1].stop();
    let begun = Instant::now();
    scenario.children[0].release();
    // The next token is larger than that of the grant that is not accepted.
    let unaccepted = scenario.runtime.block_on(scenario.operator.inspect());
    scenario.last = unaccepted.unwrap().unwrap().token.unwrap().get();
    scenario.acquired(2, ACCEPTANCE + SPARE);
    let took = begun.elapsed();
    assert!(took >= ACCEPTANCE * 9 / 10, "{took:?}");
    scenario.children[1].resume();
    // It had the lock for three seconds while it was stopped, and joins the queue again.
    let state = scenario.children[2].execute("state", "state");
    assert!(state.starts_with("Held"), "{state}");
    scenario.children[1].assert_waiting();
    scenario.children[2].release();
    scenario.acquired(1, SOON);
    scenario.end(1);
}

fn killed_waiters_are_passed_over_at_once(fixture: &Fixture) {
    let mut scenario = Scenario::start(fixture, 4);
    scenario.kill(1);
    scenario.kill(1);
    scenario.children[0].release();
    scenario.acquired(1, AT_ONCE);
    scenario.end(1);
}

over_shared_stores! {
    the_next_is_served,
    a_stopped_waiter_is_passed_over,
    killed_waiters_are_passed_over_at_once,
}
