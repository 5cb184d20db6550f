//! A store that forgets what it has acknowledged, or is written to by others. Two may rely on one lock until the first
//! is notified; the resource excludes the first.

use leasehold::{Cause, Owner};
use leasehold_testkit::{RedisServer, Restart, eventually_async};

use super::checker::{assert_all_stay_held, lost};
use super::scenario::{Contended, Scenario, TTL, acquire_each, client, key};
use crate::waiters::SOON;

/// The server notifies the holder, long before its next renewal.
async fn flushall() {
    let contended = Contended::start().await;
    contended.checker.store_forgets();
    contended.server.cli(&["FLUSHALL"]);
    let (scenario, held, next) = contended.granted().await;
    scenario.assert_superseded(held, next).await;
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

async fn eviction() {
    let options = RedisServer::options().maxmemory_forgetful(4 << 20);
    let scenario = Scenario::start_with(options, TTL).await;
    scenario.checker.store_forgets();
    let held = scenario.acquire(&scenario.a).await;
    let filling = "x".repeat(16 << 10);
    for n in 0.. {
        assert!(n < 10_000, "nothing is evicted");
        let key = format!("filling/{n}");
        scenario.server.cli(&["SET", &key, &filling]);
        if scenario.record().is_empty() {
            break;
        }
    }
    held.until_lost(&[Cause::Deleted]).await;
    // The record of the next grant needs no free memory: something else is evicted.
    let mut next = scenario.acquire(&scenario.b).await;
    assert!(next.write() && !held.write());
    scenario.server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    // Until then it may have been evicted itself.
    if scenario.record().is_empty() {
        next.until_lost(&[Cause::Deleted]).await;
        next = scenario.acquire(&scenario.b).await;
    }
    drop(held);
    scenario.assert_ends(next).await;
}

/// Only that lease is affected: in jeopardy, as it cannot be renewed, and then lost.
async fn a_wrong_type_under_one_of_several_keys() {
    let scenario = Scenario::start().await;
    let mut all = acquire_each(&scenario.a, 9, TTL).await;
    let spoilt = all.remove(4);
    let record = key(spoilt.name(), "");
    scenario.server.cli(&["SET", &record, "theirs"]);
    let outcome = async {
        spoilt.until_in_jeopardy().await;
        spoilt.until_lost(&[Cause::Unreachable]).await;
    };
    tokio::join!(outcome, assert_all_stay_held(&all, TTL * 3 / 2));
    assert!(spoilt.release().await.is_err());
    assert_eq!(scenario.server.cli(&["GET", &record]), "theirs");
    for held in all {
        held.release().await.unwrap();
    }
    scenario.server.cli(&["DEL", &record]);
    scenario.assert_clean_end().await;
}

/// The owner re-enters a lease that the store has forgotten, without a notification.
async fn a_re_entry_into_a_lease_that_is_forgotten() {
    // Without the rights that notifications need.
    let options = RedisServer::options().acl("reader", "secret", "~* &* +@all -client");
    let scenario = Scenario::start_with(options, TTL).await;
    scenario.checker.store_forgets();
    let url = scenario.server.url_of("reader", "secret");
    let client = client(&url, TTL).await;
    let mutex = scenario.mutex(&client).owned_by(&Owner::new());
    let outer = scenario.checker.granted(mutex.lock().await.unwrap());
    scenario.server.cli(&["FLUSHALL"]);
    let reentered = tokio::time::timeout(TTL / 2, mutex.lock()).await;
    lost(outer.state(), &[Cause::Deleted]);
    // It is a new lease, which the old one does not disturb.
    let inner = scenario.checker.granted(reentered.unwrap().unwrap());
    assert_ne!(inner.lease_id(), outer.lease_id());
    assert!(inner.write() && !outer.write());
    scenario.assert_recorded(&inner, 1);
    drop(outer);
    inner.assert_stays_held(TTL).await;
    inner.release().await.unwrap();
    eventually_async(SOON, async || scenario.record().is_empty()).await;
    scenario.assert_clean_end().await;
}

schedules! {
    a_re_entry_into_a_lease_that_is_forgotten,
    flushall,
    killed_and_back_without_its_data,
    eviction,
    a_wrong_type_under_one_of_several_keys,
}
