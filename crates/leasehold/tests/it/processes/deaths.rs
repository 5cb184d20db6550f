//! Holders and waiters that release, die and stand still.

use std::time::Duration;

use rustix::process::Signal;

use super::child::{Child, within};
use crate::fixture::{Fixture, fresh_name};

/// Less than the acceptance ttl.
const AT_ONCE: Duration = Duration::from_secs(2);

/// How long a waiter has a grant that it does not take.
const ACCEPTANCE: Duration = Duration::from_secs(3);

/// What timers and a busy machine may add.
const SPARE: Duration = Duration::from_secs(4);

/// Processes that want one lock, and an operator.
struct Scenario {
    runtime: tokio::runtime::Runtime,
    operator: leasehold::Mutex,
    children: Vec<Child>,
}

impl Scenario {
    fn set(fixture: &Fixture, children: usize) -> Self {
        let name = fresh_name("deaths");
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let operator = runtime.block_on(async { fixture.client().await.mutex(&name).unwrap() });
        let children = (0..children).map(|_| Child::start(fixture, &name));
        Self {
            children: children.collect(),
            operator,
            runtime,
        }
    }

    /// The first of them holds the lock, the others wait in their order.
    fn queue_up(&self) -> u64 {
        let token = self.children[0].locks();
        for child in &self.children[1..] {
            child.waits();
        }
        token
    }
}

/// Waits until a child holds the lock. Returns the token, which must be larger than the last.
#[track_caller]
fn holds_next(child: &Child, last: u64, span: Duration) -> u64 {
    let token = child.holds(span);
    assert!(token > last, "{token} after {last}");
    token
}

/// Each way in which a lock comes free lets the next process in: a release, the death of the holder,
/// an operator.
fn the_next_is_served(_: &str, fixture: impl FnOnce() -> Fixture) {
    let fixture = fixture();
    let mut scenario = Scenario::set(&fixture, 5);
    let mut last = scenario.queue_up();
    scenario.children[0].releases();
    last = holds_next(&scenario.children[1], last, AT_ONCE);
    scenario.children[2].still_waits();

    // It has not renewed yet, so its time is that of a waiter that was granted the lock.
    scenario.children.remove(1).kill();
    let children = &scenario.children;
    last = holds_next(&children[1], last, ACCEPTANCE + SPARE);
    children[2].still_waits();

    let freed = scenario.runtime.block_on(scenario.operator.force_release());
    assert_eq!(freed.unwrap().unwrap().token.unwrap().get(), last);
    last = holds_next(&children[2], last, AT_ONCE);
    children[1].tell("release");
    assert_eq!(children[1].says("released"), "Lost");
    children[3].still_waits();

    children[2].releases();
    holds_next(&children[3], last, AT_ONCE);
    children[3].releases();
    let locked = scenario.runtime.block_on(scenario.operator.is_locked());
    assert!(!locked.unwrap());
}

/// A killed waiter is passed over. A stopped one costs the others three seconds, and notices its loss when it
/// continues.
fn dead_and_stopped_waiters_are_passed_over(_: &str, fixture: impl FnOnce() -> Fixture) {
    let fixture = fixture();
    let mut scenario = Scenario::set(&fixture, 5);
    let first = scenario.queue_up();
    scenario.children.remove(1).kill();
    scenario.children.remove(1).kill();
    let [holder, stopped, last] = &scenario.children[..] else {
        unreachable!();
    };
    stopped.stop();
    holder.releases();
    let (second, took) = within(ACCEPTANCE + SPARE, || last.holds(ACCEPTANCE + SPARE));
    assert!(took >= ACCEPTANCE - SPARE / 40, "{took:?}");
    assert!(second > first);
    stopped.signal(Signal::CONT);
    // It had the lock for three seconds while it was stopped, and comes to the queue anew.
    last.tell("state");
    assert!(last.says("is").starts_with("Held"));
    stopped.still_waits();
    last.releases();
    let third = stopped.holds(AT_ONCE + SPARE);
    assert!(third > second);
    stopped.releases();
    let locked = scenario.runtime.block_on(scenario.operator.is_locked());
    assert!(!locked.unwrap());
}

fn a_killed_waiter_is_passed_over_at_once(_: &str, fixture: impl FnOnce() -> Fixture) {
    let fixture = fixture();
    let mut scenario = Scenario::set(&fixture, 4);
    let first = scenario.queue_up();
    scenario.children.remove(1).kill();
    scenario.children.remove(1).kill();
    let [holder, last] = &scenario.children[..] else {
        unreachable!();
    };
    holder.releases();
    let (second, _) = within(AT_ONCE, || last.holds(AT_ONCE));
    assert!(second > first);
    last.releases();
}

over_shared_stores! {
    the_next_is_served,
    dead_and_stopped_waiters_are_passed_over,
    a_killed_waiter_is_passed_over_at_once,
}
