//! A server that is stopped while leases of the default ttl are held. It starts early, because it takes longest.

use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::{Cause, ErrorKind, Instant};
use leasehold_testkit::RedisServer;

use super::runner::run_all;
use super::scenario::{Contended, Scenario};

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(30);

/// A contended lock, and the instant before its grant.
async fn contended() -> (Contended, Instant) {
    let scenario = Scenario::start_with(RedisServer::options(), TTL).await;
    let begun = BootClock.now();
    (Contended::new(scenario).await, begun)
}

/// Stops the server between two instants.
async fn stop(contended: &Contended, from: Instant, to: Instant) {
    BootClock.sleep_until(from).await;
    contended.server.stop();
    BootClock.sleep_until(to).await;
    contended.server.cont();
}

/// Over the time of a renewal, whose reply is in time: the renewal is due at 10 s, and has 2 s.
async fn of_1_s() {
    let (contended, begun) = contended().await;
    let [from, to] = [19, 21].map(|half| begun.after(SECOND * half / 2));
    let stop = stop(&contended, from, to);
    tokio::join!(stop, contended.held.assert_never_in_doubt(SECOND * 12));
    let (scenario, next) = contended.release_to_waiter().await;
    scenario.assert_ends(next).await;
}

/// The first renewal fails, and the second is in time.
async fn of_12_s() {
    let (contended, begun) = contended().await;
    let jeopardy = async {
        contended.held.until_in_jeopardy().await;
        BootClock.now().since(begun)
    };
    let [from, to] = [5, 17].map(|second| begun.after(SECOND * second));
    let (jeopardy, ()) = tokio::join!(jeopardy, stop(&contended, from, to));
    // Its request was sent, and the server does not go on before this.
    let expected = SECOND * 10..SECOND * 17;
    assert!(expected.contains(&jeopardy), "{jeopardy:?}");
    contended.held.until_held().await;
    contended.held.assert_stays_held(SECOND * 5).await;
    let (scenario, next) = contended.release_to_waiter().await;
    scenario.assert_ends(next).await;
}

/// The holder is notified with a third of the ttl left, and the lease ends while the server is stopped.
async fn of_40_s() {
    let (contended, begun) = contended().await;
    let loss = async {
        contended.held.until_lost(&[Cause::Unreachable]).await;
        BootClock.now().since(begun)
    };
    let [from, to] = [1, 41].map(|second| begun.after(SECOND * second));
    let (loss, ()) = tokio::join!(loss, stop(&contended, from, to));
    assert!((SECOND * 19..SECOND * 29).contains(&loss), "{loss:?}");
    let (scenario, held, next) = contended.lost().await;
    let error = held.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    // The requests of the holder from this time have been applied.
    next.assert_stays_held(SECOND).await;
    scenario.assert_recorded(&next, 1);
    scenario.assert_ends(next).await;
}

schedules! { of_1_s, of_12_s, of_40_s }

#[test]
fn of_1_and_12_and_40_seconds() {
    run_all(SCHEDULES);
}
