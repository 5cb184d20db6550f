//! The server's wall clock is set. The holders' clocks do not know.

use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::{Cause, ErrorKind};
use leasehold_testkit::{RedisServer, Way, eventually_async};

use super::checker::lost;
use super::scenario::{Scenario, TTL};
use crate::waiters::SOON;

const HOUR: Duration = Duration::from_secs(3600);
const HOUR_MS: i64 = 3_600_000;

async fn scenario() -> Scenario {
    Scenario::start_with(RedisServer::options().clock_shim(), TTL).await
}

/// The store ends leases early. The holder is notified when it asks or hears, the resource refuses it
/// until then.
async fn forwards_by_an_hour() {
    let scenario = scenario().await;
    scenario.checker.store_forgets();
    let held = scenario.acquire(&scenario.a).await;
    let waiter = scenario.enqueue(&scenario.b).await;
    let stepped = BootClock.now();
    scenario.server.step_clock(HOUR_MS);
    let state = held.until(|state| state.is_lost()).await;
    lost(state, &[Cause::Deleted, Cause::TakenOver]);
    let notified = BootClock.now().since(stepped);
    assert!(notified < TTL / 2, "{notified:?}");
    let (next, _) = waiter.granted().await;
    assert!(next.write() && !held.write());
    assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::Lost);
    next.assert_stays_held(TTL).await;
    scenario.assert_recorded(&next, 1);
    next.release().await.unwrap();
    scenario.assert_clean_end().await;
}

/// Nobody is granted anything early, and a release lets the next one in as ever.
async fn back_by_an_hour_under_a_holder() {
    let scenario = scenario().await;
    let held = scenario.acquire(&scenario.a).await;
    let waiter = scenario.enqueue(&scenario.b).await;
    scenario.server.step_clock(-HOUR_MS);
    held.assert_stays_held(TTL * 3 / 2).await;
    assert!(waiter.is_waiting());
    scenario.assert_recorded(&held, 1);
    held.release().await.unwrap();
    let (next, _) = waiter.granted().await;
    assert!(next.write());
    assert!(scenario.ttl_left() <= TTL, "{:?}", scenario.ttl_left());
    next.assert_stays_held(TTL).await;
    next.release().await.unwrap();
    scenario.assert_clean_end().await;
}

/// The lock of a holder that dies stays for as much longer as the clock was set back. Force frees it.
async fn back_by_an_hour_under_a_holder_that_dies() {
    let scenario = scenario().await;
    let held = scenario.acquire(&scenario.a).await;
    let waiter = scenario.enqueue(&scenario.b).await;
    scenario.server.step_clock(-HOUR_MS);
    scenario.proxy.swallow(Way::Both);
    let state = held.until(|state| state.is_lost()).await;
    lost(state, &[Cause::Unreachable]);
    tokio::time::sleep(TTL).await;
    assert!(waiter.is_waiting());
    let left = scenario.ttl_left();
    assert!((HOUR - TTL..HOUR + TTL).contains(&left), "{left:?}");
    let cut_off = scenario.mutex(&scenario.b).force_release().await.unwrap();
    assert_eq!(cut_off.unwrap().lease, held.lease_id());
    let (next, _) = waiter.granted().await;
    assert!(next.write() && !held.write());
    next.release().await.unwrap();
    scenario.assert_clean_end().await;
}

/// Back and forth while the lock changes hands: the tokens grow all the same.
async fn back_and_forth_between_grants() {
    let scenario = scenario().await;
    for step in [-HOUR_MS, 2 * HOUR_MS, -HOUR_MS, -HOUR_MS, HOUR_MS] {
        for client in [&scenario.a, &scenario.b] {
            let held = scenario.acquire(client).await;
            assert!(held.write());
            held.release().await.unwrap();
        }
        scenario.server.step_clock(step);
    }
    eventually_async(SOON, async || scenario.record().is_empty()).await;
    scenario.assert_clean_end().await;
}

schedules! {
    forwards_by_an_hour,
    back_by_an_hour_under_a_holder,
    back_by_an_hour_under_a_holder_that_dies,
    back_and_forth_between_grants,
}
