//! Many leases on a server that goes away and comes back.

use std::time::Duration;

use leasehold::Cause;
use leasehold::clock::{BootClock, Clock};
use leasehold_testkit::{RedisServer, Restart, eventually_async};

use super::checker::assert_all_stay_held;
use super::runner::{run, run_all};
use super::scenario::{Scenario, acquire_each};
use crate::waiters::SOON;

const COUNT: usize = 2_000;

/// Long enough to start a server, and to look at all leases, on a busy machine before the margin.
const TTL: Duration = Duration::from_secs(15);

/// How many leases the store has, and those of no hold or several among them.
fn records(scenario: &Scenario) -> (usize, usize) {
    let keys = scenario.server.cli(&["KEYS", "leasehold:{*}"]);
    let held = |key: &str| scenario.server.cli(&["GET", key]);
    let odd = keys.lines().filter(|key| held(key).contains(' '));
    (keys.lines().count(), odd.count())
}

#[test]
fn many_leases() {
    run_all(&[("in_time_and_too_late", || run(in_time_and_too_late()))]);
}

async fn in_time_and_too_late() {
    let options = RedisServer::options().append_only();
    let mut scenario = Scenario::start_with(options, TTL).await;
    let all = acquire_each(&scenario.a, COUNT, TTL).await;
    assert_eq!(records(&scenario), (COUNT, 0));
    scenario.server.kill9();
    for held in &all {
        held.until_in_jeopardy().await;
    }
    scenario.server.restart(Restart::Kept);
    for held in &all {
        held.until_held().await;
    }
    assert_all_stay_held(&all, TTL / 2).await;
    assert_eq!(records(&scenario), (COUNT, 0));

    scenario.server.kill9();
    for held in &all {
        held.until_lost(&[Cause::Unreachable]).await;
    }
    let notified = BootClock.now();
    // All were notified before the store could pass on any of them.
    assert!(all.iter().all(|held| notified < held.deadline()));
    scenario.server.restart(Restart::Kept);
    let last = all.last().unwrap().token();
    // None comes back, and the store ends them.
    eventually_async(SOON, async || records(&scenario).0 == 0).await;
    assert!(all.iter().all(|held| held.state().is_lost()));
    let next = acquire_each(&scenario.b, COUNT, TTL).await;
    assert!(next.iter().all(|held| held.token() > last));
    drop(all);
    assert_all_stay_held(&next, TTL / 6).await;
    assert_eq!(records(&scenario), (COUNT, 0));
}
