//! Holders and waiters that release, die and stand still.

use std::time::Duration;

use rustix::process::Signal;

use super::child::{Child, serve, within};
use crate::bed::{Bed, fresh_name};

/// Less than the time that a waiter has to take its grant: nobody waited for that.
const AT_ONCE: Duration = Duration::from_secs(2);

/// How long a waiter has a grant that it does not take.
const ACCEPTANCE: Duration = Duration::from_secs(3);

/// What timers and a busy machine may add.
const SPARE: Duration = Duration::from_secs(4);

/// Processes that want one lock, and an operator.
struct Scene {
    runtime: tokio::runtime::Runtime,
    operator: leasehold::Mutex,
    children: Vec<Child>,
}

impl Scene {
    fn set(test: &str, bed: &Bed, children: usize) -> Self {
        let name = fresh_name("deaths");
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let operator = runtime.block_on(async { bed.client().await.mutex(&name).unwrap() });
        let children = (0..children).map(|_| Child::start(test, bed, &name));
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

/// Waits until a child holds the lock, and answers its token, which must be larger than the last.
#[track_caller]
fn holds_next(child: &Child, last: u64, span: Duration) -> u64 {
    let token = child.holds(span);
    assert!(token > last, "{token} after {last}");
    token
}

/// Each way in which a lock comes free lets the next process in: a release, the death of the holder,
/// an operator.
fn the_next_is_served(test: &str, bed: impl FnOnce() -> Bed) {
    if serve() {
        return;
    }
    let bed = bed();
    let mut scene = Scene::set(test, &bed, 5);
    let mut last = scene.queue_up();
    scene.children[0].releases();
    last = holds_next(&scene.children[1], last, AT_ONCE);
    scene.children[2].still_waits();

    // It has not renewed yet, so its time is that of a waiter that was granted the lock.
    scene.children.remove(1).kill();
    let children = &scene.children;
    last = holds_next(&children[1], last, ACCEPTANCE + SPARE);
    children[2].still_waits();

    let freed = scene.runtime.block_on(scene.operator.force_release());
    assert_eq!(freed.unwrap().unwrap().token.unwrap().get(), last);
    last = holds_next(&children[2], last, AT_ONCE);
    children[1].tell("release");
    assert_eq!(children[1].says("released"), "Lost");
    children[3].still_waits();

    children[2].releases();
    holds_next(&children[3], last, AT_ONCE);
    children[3].releases();
    let locked = scene.runtime.block_on(scene.operator.is_locked());
    assert!(!locked.unwrap());
}

/// A waiter that was killed is passed over; one that is stopped costs the others three seconds, and
/// is not deceived when it goes on.
fn waiters_that_die_or_stand_still_are_passed_over(test: &str, bed: impl FnOnce() -> Bed) {
    if serve() {
        return;
    }
    let bed = bed();
    let mut scene = Scene::set(test, &bed, 5);
    let first = scene.queue_up();
    scene.children.remove(1).kill();
    scene.children.remove(1).kill();
    let [holder, stopped, last] = &scene.children[..] else {
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
    let locked = scene.runtime.block_on(scene.operator.is_locked());
    assert!(!locked.unwrap());
}

/// Nobody waits for those whose connection is gone.
fn a_waiter_that_was_killed_costs_nothing(test: &str, bed: impl FnOnce() -> Bed) {
    if serve() {
        return;
    }
    let bed = bed();
    let mut scene = Scene::set(test, &bed, 4);
    let first = scene.queue_up();
    scene.children.remove(1).kill();
    scene.children.remove(1).kill();
    let [holder, last] = &scene.children[..] else {
        unreachable!();
    };
    holder.releases();
    let (second, _) = within(AT_ONCE, || last.holds(AT_ONCE));
    assert!(second > first);
    last.releases();
}

over_shared_stores! {
    the_next_is_served,
    waiters_that_die_or_stand_still_are_passed_over,
    a_waiter_that_was_killed_costs_nothing,
}
