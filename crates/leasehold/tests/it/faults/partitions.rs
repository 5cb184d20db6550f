//! A partition that heals: nothing is lost on the way, and all of it comes at once when it is over.

use leasehold::{Cause, ErrorKind};
use leasehold_testkit::{Way, eventually_async};

use super::checker::lost;
use super::scenario::{Scenario, TTL};
use crate::waiters::SOON;

async fn before_the_margin() {
    let scenario = Scenario::start().await;
    let held = scenario.acquire(&scenario.a).await;
    let waiter = scenario.enqueue(&scenario.b).await;
    scenario.proxy.hold(Way::Both);
    held.until_in_doubt().await;
    scenario.proxy.go_on();
    held.until(|state| state.is_held()).await;
    held.assert_stays_held(TTL).await;
    scenario.assert_recorded(&held, 1);
    assert!(waiter.is_waiting() && held.write());
    held.release().await.unwrap();
    let (next, _) = waiter.granted().await;
    next.release().await.unwrap();
    scenario.assert_clean_end().await;
}

/// The lease is still the holder's in the store, but nothing revives it.
async fn between_margin_and_deadline() {
    let scenario = Scenario::start().await;
    let held = scenario.acquire(&scenario.a).await;
    let waiter = scenario.enqueue(&scenario.b).await;
    let notified = held.loss_notification();
    scenario.proxy.hold(Way::Both);
    held.until(|state| state.is_lost()).await;
    scenario.assert_recorded(&held, 1);
    scenario.proxy.go_on();
    // The late renewals.
    eventually_async(SOON, async || scenario.ttl_left() > TTL / 2).await;
    lost(held.state(), &[Cause::Unreachable]);
    assert!(waiter.is_waiting());
    // Whoever gives it back frees it at once.
    assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::Lost);
    let (next, at) = waiter.granted().await;
    notified.before(at).await;
    assert!(next.write());
    next.release().await.unwrap();
    scenario.assert_clean_end().await;
}

async fn after_the_deadline() {
    let scenario = Scenario::start().await;
    let held = scenario.acquire(&scenario.a).await;
    let waiter = scenario.enqueue(&scenario.b).await;
    let notified = held.loss_notification();
    scenario.proxy.hold(Way::Both);
    let (next, at) = waiter.granted().await;
    notified.before(at).await;
    assert!(next.write());
    scenario.proxy.go_on();
    assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::Lost);
    next.assert_stays_held(TTL).await;
    scenario.assert_recorded(&next, 1);
    next.release().await.unwrap();
    // The other is let in again.
    let again = scenario.acquire(&scenario.a).await;
    assert!(again.write());
    again.release().await.unwrap();
    scenario.assert_clean_end().await;
}

schedules! {
    before_the_margin,
    between_margin_and_deadline,
    after_the_deadline,
}
