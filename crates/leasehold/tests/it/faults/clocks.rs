//! The server's wall clock is set. The holders' clocks do not know.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::clock::{BootClock, Clock};
use leasehold_testkit::{RedisServer, Way, eventually_async};

use super::causes::{Why, lost};
use super::scenario::{Scenario, TTL};
use crate::waiters::SOON;

const HOUR: Duration = Duration::from_secs(3600);
const HOUR_MS: i64 = 3_600_000;

async fn scenario() -> Scenario {
    Scenario::with(RedisServer::options().clock_shim(), TTL).await
}

/// The store ends leases early. The holder is told when it asks or hears, the resource refuses it
/// until then.
async fn forwards_by_an_hour() {
    let scenario = scenario().await;
    scenario.judge.store_forgets();
    let held = scenario.holds(&scenario.a).await;
    let waiter = scenario.queues(&scenario.b).await;
    let stepped = BootClock.now();
    scenario.server.step_clock(HOUR_MS);
    let state = held.until(|state| state.is_lost()).await;
    lost(state, &[Why::Gone, Why::TakenOver]);
    let told = BootClock.now().since(stepped);
    assert!(told < TTL / 2, "{told:?}");
    let (next, _) = waiter.served().await;
    assert!(next.writes() && !held.writes());
    assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::Lost);
    next.stays_held(TTL).await;
    scenario.is_recorded(&next, 1);
    next.release().await.unwrap();
    scenario.ends_clean().await;
}

/// Nobody is granted anything early, and a release lets the next one in as ever.
async fn back_by_an_hour_under_a_holder() {
    let scenario = scenario().await;
    let held = scenario.holds(&scenario.a).await;
    let waiter = scenario.queues(&scenario.b).await;
    scenario.server.step_clock(-HOUR_MS);
    held.stays_held(TTL * 3 / 2).await;
    assert!(waiter.waits());
    scenario.is_recorded(&held, 1);
    held.release().await.unwrap();
    let (next, _) = waiter.served().await;
    assert!(next.writes());
    assert!(scenario.left() <= TTL, "{:?}", scenario.left());
    next.stays_held(TTL).await;
    next.release().await.unwrap();
    scenario.ends_clean().await;
}

/// The lock of a holder that dies stays for as much longer as the clock was set back. Force frees it.
async fn back_by_an_hour_under_a_holder_that_dies() {
    let scenario = scenario().await;
    let held = scenario.holds(&scenario.a).await;
    let waiter = scenario.queues(&scenario.b).await;
    scenario.server.step_clock(-HOUR_MS);
    scenario.proxy.swallow(Way::Both);
    let state = held.until(|state| state.is_lost()).await;
    lost(state, &[Why::Unreachable]);
    tokio::time::sleep(TTL).await;
    assert!(waiter.waits());
    let left = scenario.left();
    assert!((HOUR - TTL..HOUR + TTL).contains(&left), "{left:?}");
    let cut_off = scenario.lock(&scenario.b).force_release().await.unwrap();
    assert_eq!(cut_off.unwrap().lease, held.lease_id());
    let (next, _) = waiter.served().await;
    assert!(next.writes() && !held.writes());
    next.release().await.unwrap();
    scenario.ends_clean().await;
}

/// Back and forth while the lock changes hands: the tokens grow all the same.
async fn back_and_forth_between_grants() {
    let scenario = scenario().await;
    for step in [-HOUR_MS, 2 * HOUR_MS, -HOUR_MS, -HOUR_MS, HOUR_MS] {
        for client in [&scenario.a, &scenario.b] {
            let held = scenario.holds(client).await;
            assert!(held.writes());
            held.release().await.unwrap();
        }
        scenario.server.step_clock(step);
    }
    eventually_async(SOON, async || scenario.record().is_empty()).await;
    scenario.ends_clean().await;
}

schedules! {
    forwards_by_an_hour,
    back_by_an_hour_under_a_holder,
    back_by_an_hour_under_a_holder_that_dies,
    back_and_forth_between_grants,
}
