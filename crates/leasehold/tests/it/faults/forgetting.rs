//! A store that forgets what it has acknowledged, or is written to by others. Two may believe in one
//! lock until the first is told; the resource keeps them apart.

use leasehold::clock::{BootClock, Clock};
use leasehold::{ErrorKind, Owner};
use leasehold_testkit::{RedisServer, eventually_async};

use super::causes::{Why, in_jeopardy, lost};
use super::judge::all_stay_held;
use super::scenario::{Scenario, TTL, client, holds_each, key};
use crate::waiters::SOON;

/// The holder is told by the server, long before it would ask.
async fn flushall() {
    let scenario = Scenario::set().await;
    scenario.judge.store_forgets();
    let held = scenario.holds(&scenario.a).await;
    let waiter = scenario.queues(&scenario.b).await;
    scenario.server.cli(&["FLUSHALL"]);
    let (next, _) = waiter.served().await;
    assert!(next.writes() && !held.writes());
    let state = held.until(|state| state.is_lost()).await;
    lost(state, &[Why::Gone, Why::TakenOver]);
    assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::Lost);
    next.stays_held(TTL).await;
    scenario.is_recorded(&next, 1);
    next.release().await.unwrap();
    scenario.ends_clean().await;
}

async fn eviction() {
    let options = RedisServer::options().maxmemory_forgetful(4 << 20);
    let scenario = Scenario::with(options, TTL).await;
    scenario.judge.store_forgets();
    let held = scenario.holds(&scenario.a).await;
    let told = held.told();
    let filling = "x".repeat(16 << 10);
    for n in 0.. {
        assert!(n < 10_000, "it forgets nothing");
        scenario
            .server
            .cli(&["SET", &format!("filling/{n}"), &filling]);
        if scenario.record().is_empty() {
            break;
        }
    }
    let state = held.until(|state| state.is_lost()).await;
    lost(state, &[Why::Gone]);
    // No room was needed for the next one: something else had to go.
    let next = scenario.holds(&scenario.b).await;
    told.before(BootClock.now()).await;
    assert!(next.writes() && !held.writes());
    scenario.server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    next.release().await.unwrap();
    drop(held);
    scenario.ends_clean().await;
}

/// Exactly that lease is touched: in jeopardy, as it cannot be renewed, and then lost.
async fn a_wrong_type_under_one_of_several_keys() {
    let scenario = Scenario::set().await;
    let mut all = holds_each(&scenario.a, 9, TTL).await;
    let spoilt = all.remove(4);
    let record = key(spoilt.name(), "");
    scenario.server.cli(&["SET", &record, "theirs"]);
    let fate = async {
        let state = spoilt.until_in_doubt().await;
        in_jeopardy(state, &[Why::Unreachable]);
        let state = spoilt.until(|state| state.is_lost()).await;
        lost(state, &[Why::Unreachable]);
    };
    tokio::join!(fate, all_stay_held(&all, TTL * 3 / 2));
    assert!(spoilt.release().await.is_err());
    assert_eq!(scenario.server.cli(&["GET", &record]), "theirs");
    for held in all {
        held.release().await.unwrap();
    }
    scenario.server.cli(&["DEL", &record]);
    scenario.ends_clean().await;
}

/// The owner enters a lease again that the store has forgotten, and was not told.
async fn a_re_entry_into_a_lease_that_is_forgotten() {
    // Without rights to be told of changes.
    let options = RedisServer::options().acl("deaf", "secret", "~* &* +@all -client");
    let scenario = Scenario::with(options, TTL).await;
    scenario.judge.store_forgets();
    let url = scenario.server.url_of("deaf", "secret");
    let client = client(&url, TTL).await;
    let mutex = scenario.lock(&client).owned_by(&Owner::new());
    let outer = scenario.judge.granted(mutex.lock().await.unwrap());
    scenario.server.cli(&["FLUSHALL"]);
    let entered = tokio::time::timeout(TTL / 2, mutex.lock()).await;
    lost(outer.state(), &[Why::Gone]);
    // It is a new lease, which nothing of the old one stands in the way of.
    let inner = scenario.judge.granted(entered.unwrap().unwrap());
    assert_ne!(inner.lease_id(), outer.lease_id());
    assert!(inner.writes() && !outer.writes());
    scenario.is_recorded(&inner, 1);
    drop(outer);
    inner.stays_held(TTL).await;
    inner.release().await.unwrap();
    eventually_async(SOON, async || scenario.record().is_empty()).await;
    scenario.ends_clean().await;
}

schedules! {
    a_re_entry_into_a_lease_that_is_forgotten,
    flushall,
    eviction,
    a_wrong_type_under_one_of_several_keys,
}
