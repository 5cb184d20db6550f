//! A store that forgets what it has acknowledged, or is written to by others. Two may believe in one
//! lock until the first is told; the resource keeps them apart.

use leasehold::clock::{BootClock, Clock};
use leasehold::{ErrorKind, Owner};
use leasehold_testkit::{RedisServer, eventually_async};

use super::causes::{Why, in_jeopardy, lost};
use super::judge::all_stay_held;
use super::scene::{Scene, TTL, client, holds_each, key};
use crate::waiters::SOON;

/// The holder is told by the server, long before it would ask.
async fn flushall() {
    let scene = Scene::set().await;
    scene.judge.store_forgets();
    let held = scene.holds(&scene.a).await;
    let waiter = scene.queues(&scene.b).await;
    scene.server.cli(&["FLUSHALL"]);
    let (next, _) = waiter.served().await;
    assert!(next.writes() && !held.writes());
    let state = held.until(|state| state.is_lost()).await;
    lost(state, &[Why::Gone, Why::TakenOver]);
    assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::Lost);
    next.stays_held(TTL).await;
    scene.is_recorded(&next, 1);
    next.release().await.unwrap();
    scene.ends_clean().await;
}

async fn eviction() {
    let options = RedisServer::options().maxmemory_forgetful(4 << 20);
    let scene = Scene::with(options, TTL).await;
    scene.judge.store_forgets();
    let held = scene.holds(&scene.a).await;
    let told = held.told();
    let filling = "x".repeat(16 << 10);
    for n in 0.. {
        assert!(n < 10_000, "it forgets nothing");
        scene
            .server
            .cli(&["SET", &format!("filling/{n}"), &filling]);
        if scene.record().is_empty() {
            break;
        }
    }
    let state = held.until(|state| state.is_lost()).await;
    lost(state, &[Why::Gone]);
    // No room was needed for the next one: something else had to go.
    let next = scene.holds(&scene.b).await;
    told.before(BootClock.now()).await;
    assert!(next.writes() && !held.writes());
    scene.server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    next.release().await.unwrap();
    drop(held);
    scene.ends_clean().await;
}

/// Exactly that lease is touched: in jeopardy, as it cannot be renewed, and then lost.
async fn a_wrong_type_under_one_of_several_keys() {
    let scene = Scene::set().await;
    let mut all = holds_each(&scene.a, 9, TTL).await;
    let spoilt = all.remove(4);
    let record = key(spoilt.name(), "");
    scene.server.cli(&["SET", &record, "theirs"]);
    let fate = async {
        let state = spoilt.until_in_doubt().await;
        in_jeopardy(state, &[Why::Unreachable]);
        let state = spoilt.until(|state| state.is_lost()).await;
        lost(state, &[Why::Unreachable]);
    };
    tokio::join!(fate, all_stay_held(&all, TTL * 3 / 2));
    assert!(spoilt.release().await.is_err());
    assert_eq!(scene.server.cli(&["GET", &record]), "theirs");
    for held in all {
        held.release().await.unwrap();
    }
    scene.server.cli(&["DEL", &record]);
    scene.ends_clean().await;
}

/// The owner enters a lease again that the store has forgotten, and was not told.
async fn a_re_entry_into_a_lease_that_is_forgotten() {
    // Without rights to be told of changes.
    let options = RedisServer::options().acl("deaf", "secret", "~* &* +@all -client");
    let scene = Scene::with(options, TTL).await;
    scene.judge.store_forgets();
    let url = scene.server.url_of("deaf", "secret");
    let client = client(&url, TTL).await;
    let mutex = scene.lock(&client).owned_by(&Owner::new());
    let outer = scene.judge.granted(mutex.lock().await.unwrap());
    scene.server.cli(&["FLUSHALL"]);
    let entered = tokio::time::timeout(TTL / 2, mutex.lock()).await;
    lost(outer.state(), &[Why::Gone]);
    // It is a new lease, which nothing of the old one stands in the way of.
    let inner = scene.judge.granted(entered.unwrap().unwrap());
    assert_ne!(inner.lease_id(), outer.lease_id());
    assert!(inner.writes() && !outer.writes());
    scene.is_recorded(&inner, 1);
    drop(outer);
    inner.stays_held(TTL).await;
    inner.release().await.unwrap();
    eventually_async(SOON, async || scene.record().is_empty()).await;
    scene.ends_clean().await;
}

schedules! {
    a_re_entry_into_a_lease_that_is_forgotten,
    flushall,
    eviction,
    a_wrong_type_under_one_of_several_keys,
}
