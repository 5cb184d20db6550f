//! A partition that heals: nothing is lost on the way, and all of it comes at once when it is over.

use leasehold::ErrorKind;
use leasehold_testkit::{Way, eventually_async};

use super::causes::{Why, lost};
use super::scenario::{Scenario, TTL};
use crate::waiters::SOON;

async fn before_the_margin() {
    let scenario = Scenario::set().await;
    let held = scenario.holds(&scenario.a).await;
    let waiter = scenario.queues(&scenario.b).await;
    scenario.proxy.hold(Way::Both);
    held.until_in_doubt().await;
    scenario.proxy.go_on();
    held.until(|state| state.is_held()).await;
    held.stays_held(TTL).await;
    scenario.is_recorded(&held, 1);
    assert!(waiter.waits() && held.writes());
    held.release().await.unwrap();
    let (next, _) = waiter.served().await;
    next.release().await.unwrap();
    scenario.ends_clean().await;
}

/// The lease is still the holder's in the store, but nothing revives it.
async fn between_margin_and_deadline() {
    let scenario = Scenario::set().await;
    let held = scenario.holds(&scenario.a).await;
    let waiter = scenario.queues(&scenario.b).await;
    let told = held.told();
    scenario.proxy.hold(Way::Both);
    held.until(|state| state.is_lost()).await;
    scenario.is_recorded(&held, 1);
    scenario.proxy.go_on();
    // The late renewals.
    eventually_async(SOON, async || scenario.left() > TTL / 2).await;
    lost(held.state(), &[Why::Unreachable]);
    assert!(waiter.waits());
    // Whoever gives it back frees it at once.
    assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::Lost);
    let (next, at) = waiter.served().await;
    told.before(at).await;
    assert!(next.writes());
    next.release().await.unwrap();
    scenario.ends_clean().await;
}

async fn after_the_deadline() {
    let scenario = Scenario::set().await;
    let held = scenario.holds(&scenario.a).await;
    let waiter = scenario.queues(&scenario.b).await;
    let told = held.told();
    scenario.proxy.hold(Way::Both);
    let (next, at) = waiter.served().await;
    told.before(at).await;
    assert!(next.writes());
    scenario.proxy.go_on();
    assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::Lost);
    next.stays_held(TTL).await;
    scenario.is_recorded(&next, 1);
    next.release().await.unwrap();
    // The other is let in again.
    let again = scenario.holds(&scenario.a).await;
    assert!(again.writes());
    again.release().await.unwrap();
    scenario.ends_clean().await;
}

schedules! {
    before_the_margin,
    between_margin_and_deadline,
    after_the_deadline,
}
