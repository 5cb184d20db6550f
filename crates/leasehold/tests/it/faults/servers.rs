//! A server that dies, is notified to wait, and throws its clients out.

use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::{Cause, Client, ErrorKind, Instant};
use leasehold_testkit::{RedisServer, Restart, eventually_async};
use tokio::task::JoinHandle;

use super::checker::{assert_all_stay_held, in_jeopardy, lost};
use super::scenario::{Scenario, TTL, acquire_each};
use crate::waiters::{SOON, soon};

const MILLIS: Duration = Duration::from_millis(1);

/// What was acknowledged is still there, and the holder has its lease.
async fn killed_and_back_with_its_data() {
    let mut scenario = Scenario::start_with(RedisServer::options().append_only(), TTL).await;
    for _ in 0..2 {
        let held = scenario.acquire(&scenario.a).await;
        let waiter = scenario.enqueue(&scenario.b).await;
        scenario.server.kill9();
        let state = held.until_in_doubt().await;
        in_jeopardy(state, &[Cause::Unreachable]);
        scenario.server.restart(Restart::Kept);
        held.until(|state| state.is_held()).await;
        held.assert_stays_held(TTL).await;
        scenario.assert_recorded(&held, 1);
        assert!(waiter.is_waiting() && held.write());
        held.release().await.unwrap();
        let (next, _) = waiter.granted().await;
        assert!(next.write());
        next.release().await.unwrap();
    }
    scenario.assert_clean_end().await;
}

/// Two holders, until the first is notified. The resource keeps them apart.
async fn killed_and_back_without_its_data() {
    let options = RedisServer::options().append_only();
    let mut scenario = Scenario::start_with(options, TTL).await;
    let held = scenario.acquire(&scenario.a).await;
    let waiter = scenario.enqueue(&scenario.b).await;
    scenario.checker.store_forgets();
    scenario.server.kill9();
    let state = held.until_in_doubt().await;
    in_jeopardy(state, &[Cause::Unreachable]);
    scenario.server.restart(Restart::Empty);
    let (next, _) = waiter.granted().await;
    scenario.assert_superseded(held, next).await;
}

/// Dead for longer than the holder may wait.
async fn killed_and_back_too_late() {
    let mut scenario = Scenario::start_with(RedisServer::options().append_only(), TTL).await;
    let held = scenario.acquire(&scenario.a).await;
    let waiter = scenario.enqueue(&scenario.b).await;
    let notified = held.loss_notification();
    scenario.server.kill9();
    let state = held.until(|state| state.is_lost()).await;
    lost(state, &[Cause::Unreachable]);
    scenario.server.restart(Restart::Kept);
    scenario.assert_recorded(&held, 1);
    let (next, at) = waiter.granted().await;
    notified.before(at).await;
    assert!(next.write() && !held.write());
    next.release().await.unwrap();
    scenario.assert_clean_end().await;
}

async fn a_pause_of_all_writes() {
    let scenario = Scenario::start().await;
    let held = scenario.acquire(&scenario.a).await;
    let waiter = scenario.enqueue(&scenario.b).await;
    scenario.server.cli(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    held.until_in_doubt().await;
    scenario.server.cli(&["CLIENT", "UNPAUSE"]);
    held.until(|state| state.is_held()).await;
    held.assert_stays_held(TTL).await;
    let notified = held.loss_notification();
    scenario.server.cli(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let state = held.until(|state| state.is_lost()).await;
    lost(state, &[Cause::Unreachable]);
    eventually_async(SOON, async || scenario.ttl_left().is_zero()).await;
    assert!(waiter.is_waiting());
    scenario.server.cli(&["CLIENT", "UNPAUSE"]);
    let (next, at) = waiter.granted().await;
    notified.before(at).await;
    assert!(next.write() && !held.write());
    next.release().await.unwrap();
    scenario.assert_clean_end().await;
}

/// Nobody keeps a connection for long. All have their turns, and nobody loses what he holds.
async fn client_kill_in_a_loop() {
    let scenario = Scenario::start().await;
    let kept = acquire_each(&scenario.a, 3, TTL).await;
    let end = BootClock.now().after(TTL);
    let third = scenario.another_client().await;
    let clients = [&scenario.a, &scenario.a, &scenario.b, &third];
    let workers = clients.map(|client| works(&scenario, client, end));
    for n in (0..5).cycle() {
        scenario.server.cli(&["CLIENT", "KILL", "USER", "default"]);
        tokio::time::sleep(MILLIS * (20 + 7 * n)).await;
        if BootClock.now() > end {
            break;
        }
    }
    let mut turns = 0;
    for worker in workers {
        turns += soon(worker).await;
    }
    assert_eq!(turns, scenario.checker.grants());
    assert!(turns > 20, "{turns}");
    for held in kept {
        held.until(|state| state.is_held()).await;
        held.release().await.unwrap();
    }
    scenario.assert_clean_end().await;
}

/// Takes the lock, writes and releases it again and again. Answers how often.
fn works(scenario: &Scenario, client: &Client, end: Instant) -> JoinHandle<u64> {
    let (mutex, checker) = (scenario.mutex(client), scenario.checker.clone());
    tokio::spawn(async move {
        let mut turns = 0;
        while BootClock.now() < end {
            let held = checker.granted(mutex.lock().await.unwrap());
            turns += 1;
            assert!(held.write());
            tokio::time::sleep(MILLIS).await;
            assert!(held.write());
            if let Err(error) = held.release().await {
                assert_eq!(error.kind(), ErrorKind::Unreachable);
            }
        }
        turns
    })
}

/// A server that has forgotten the scripts is notified them again.
async fn script_flush_during_renewals() {
    let scenario = Scenario::start().await;
    let all = acquire_each(&scenario.a, 20, TTL / 2).await;
    let flush = async {
        loop {
            scenario.server.cli(&["SCRIPT", "FLUSH"]);
            tokio::time::sleep(MILLIS * 3).await;
        }
    };
    tokio::select! {
        () = flush => {}
        () = assert_all_stay_held(&all, TTL) => {}
    }
    for held in all {
        held.release().await.unwrap();
    }
    scenario.assert_clean_end().await;
}

schedules! {
    killed_and_back_with_its_data,
    killed_and_back_without_its_data,
    killed_and_back_too_late,
    a_pause_of_all_writes,
    client_kill_in_a_loop,
    script_flush_during_renewals,
}
