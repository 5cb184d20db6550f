//! A partition that heals, or a pause of the server: nothing is lost on the way, and all of it arrives at once
//! afterwards.

use leasehold::{Cause, ErrorKind};
use leasehold_testkit::{Way, eventually_async};

use super::checker::lost;
use super::scenario::{Contended, TTL};
use crate::waiters::SOON;

async fn before_the_margin() {
    let contended = Contended::start().await;
    contended.proxy.hold(Way::Both);
    contended.held.until_in_jeopardy().await;
    contended.proxy.go_on();
    contended.held.until_held().await;
    contended.held.assert_stays_held(TTL).await;
    let (scenario, next) = contended.release_to_waiter().await;
    scenario.assert_ends(next).await;
}

/// The lease is still the holder's in the store, but nothing revives it.
async fn between_margin_and_deadline() {
    let contended = Contended::start().await;
    contended.proxy.hold(Way::Both);
    contended.held.until_lost(&[Cause::Unreachable]).await;
    contended.assert_recorded(&contended.held, 1);
    contended.proxy.go_on();
    // The late renewals.
    eventually_async(SOON, async || contended.ttl_left() > TTL / 2).await;
    lost(contended.held.state(), &[Cause::Unreachable]);
    assert!(contended.waiter.is_waiting());
    // A release frees it at once.
    let Contended {
        scenario,
        held,
        waiter,
        ..
    } = contended;
    assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::Lost);
    scenario.assert_ends(waiter.granted().await.0).await;
}

async fn after_the_deadline() {
    let contended = Contended::start().await;
    contended.proxy.hold(Way::Both);
    let (scenario, held, next) = contended.lost().await;
    scenario.proxy.go_on();
    assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::Lost);
    next.assert_stays_held(TTL).await;
    scenario.assert_recorded(&next, 1);
    next.release().await.unwrap();
    // The other is granted the lock again.
    let again = scenario.acquire(&scenario.a).await;
    scenario.assert_ends(again).await;
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

schedules! {
    before_the_margin,
    between_margin_and_deadline,
    after_the_deadline,
    a_pause_of_all_writes,
}
