//! A server that dies, pauses, and closes connections.

use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::{Cause, Client, ErrorKind, Instant};
use leasehold_testkit::{RedisServer, Restart, eventually_async};
use tokio::task::JoinHandle;

use super::checker::assert_all_stay_held;
use super::scenario::{Contended, Scenario, TTL, acquire_each};
use crate::waiters::{SOON, soon};

const MILLIS: Duration = Duration::from_millis(1);

/// What was acknowledged is still there, and the holder keeps its lease.
async fn killed_and_back_with_its_data() {
    let options = RedisServer::options().append_only();
    let mut contended = Contended::start_with(options, TTL).await;
    for last in [false, true] {
        contended.scenario.server.kill9();
        contended.held.until_in_jeopardy().await;
        contended.scenario.server.restart(Restart::Kept);
        contended.held.until_held().await;
        contended.held.assert_stays_held(TTL).await;
        let (scenario, next) = contended.passes_on().await;
        if last {
            return scenario.assert_ends(next).await;
        }
        next.release().await.unwrap();
        contended = Contended::new(scenario).await;
    }
}

/// Two holders, until the first is notified. The resource excludes the first.
async fn killed_and_back_without_its_data() {
    let options = RedisServer::options().append_only();
    let mut contended = Contended::start_with(options, TTL).await;
    contended.checker.store_forgets();
    contended.scenario.server.kill9();
    contended.held.until_in_jeopardy().await;
    contended.scenario.server.restart(Restart::Empty);
    let (scenario, held, next) = contended.granted().await;
    scenario.assert_superseded(held, next).await;
}

/// Dead for longer than the holder may wait.
async fn killed_and_back_too_late() {
    let options = RedisServer::options().append_only();
    let mut contended = Contended::start_with(options, TTL).await;
    contended.scenario.server.kill9();
    contended.held.until_lost(&[Cause::Unreachable]).await;
    contended.scenario.server.restart(Restart::Kept);
    contended.assert_recorded(&contended.held, 1);
    let (scenario, _held, next) = contended.lost().await;
    scenario.assert_ends(next).await;
}

async fn a_pause_of_all_writes() {
    let contended = Contended::start().await;
    let pause = || contended.server.cli(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    pause();
    contended.held.until_in_jeopardy().await;
    contended.server.cli(&["CLIENT", "UNPAUSE"]);
    contended.held.until_held().await;
    contended.held.assert_stays_held(TTL).await;
    pause();
    contended.held.until_lost(&[Cause::Unreachable]).await;
    eventually_async(SOON, async || contended.ttl_left().is_zero()).await;
    assert!(contended.waiter.is_waiting());
    contended.server.cli(&["CLIENT", "UNPAUSE"]);
    let (scenario, _held, next) = contended.lost().await;
    scenario.assert_ends(next).await;
}

/// No connection lasts for long. All clients acquire the lock in turn, and no lease is lost.
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
        held.until_held().await;
        held.release().await.unwrap();
    }
    scenario.assert_clean_end().await;
}

/// Acquires the lock, writes and releases it repeatedly. Returns the number of acquisitions.
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

/// A server that has forgotten the scripts is sent them again.
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
