//! The server's wall clock is set. The holders' clocks do not know.

use std::time::Duration;

use leasehold::Cause;
use leasehold::clock::{BootClock, Clock};
use leasehold_testkit::{RedisServer, Way};

use super::scenario::{Contended, TTL};

const HOUR: Duration = Duration::from_secs(3600);
const HOUR_MS: i64 = 3_600_000;

async fn contended() -> Contended {
    Contended::start_with(RedisServer::options().clock_shim(), TTL).await
}

/// The store ends leases early. The holder is notified, and the resource refuses it until then.
async fn forwards_by_an_hour() {
    let contended = contended().await;
    contended.checker.store_forgets();
    let stepped = BootClock.now();
    contended.server.step_clock(HOUR_MS);
    let lost = contended
        .held
        .until_lost(&[Cause::Deleted, Cause::TakenOver]);
    lost.await;
    let notified = BootClock.now().since(stepped);
    assert!(notified < TTL / 2, "{notified:?}");
    let (scenario, held, next) = contended.granted().await;
    scenario.assert_superseded(held, next).await;
}

/// No lock is granted early, and a release passes it on as usual.
async fn back_by_an_hour_under_a_holder() {
    let contended = contended().await;
    contended.server.step_clock(-HOUR_MS);
    contended.held.assert_stays_held(TTL * 3 / 2).await;
    let (scenario, next) = contended.release_to_waiter().await;
    assert!(scenario.ttl_left() <= TTL, "{:?}", scenario.ttl_left());
    next.assert_stays_held(TTL).await;
    scenario.assert_ends(next).await;
}

/// The lock of a holder that dies stays for as much longer as the clock was set back. Force frees it.
async fn back_by_an_hour_under_a_holder_that_dies() {
    let contended = contended().await;
    contended.server.step_clock(-HOUR_MS);
    contended.proxy.swallow(Way::Both);
    contended.held.until_lost(&[Cause::Unreachable]).await;
    tokio::time::sleep(TTL).await;
    assert!(contended.waiter.is_waiting());
    let left = contended.ttl_left();
    assert!((HOUR - TTL..HOUR + TTL).contains(&left), "{left:?}");
    let cut_off = contended.mutex(&contended.b).force_release().await.unwrap();
    assert_eq!(cut_off.unwrap().lease, contended.held.lease_id());
    let (scenario, _held, next) = contended.lost().await;
    scenario.assert_ends(next).await;
}

schedules! {
    forwards_by_an_hour,
    back_by_an_hour_under_a_holder,
    back_by_an_hour_under_a_holder_that_dies,
}
