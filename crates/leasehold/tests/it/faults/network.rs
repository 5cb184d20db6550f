//! A network that delays and loses messages, and closes connections.

use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::{Cause, State};
use leasehold_testkit::{RedisServer, Way, eventually_async};

use super::checker::assert_all_stay_held;
use super::scenario::{Contended, Scenario, TTL, acquire_each};
use crate::waiters::SOON;

const MILLIS: Duration = Duration::from_millis(1);

/// Both clients acquire the lock in turn, however long each message takes.
async fn latency_and_jitter() {
    let scenario = Scenario::start().await;
    scenario.proxy.delay(Way::Both, MILLIS * 25..=MILLIS * 75);
    for _ in 0..5 {
        let mut held = scenario.acquire(&scenario.a).await;
        for next in [&scenario.b, &scenario.a] {
            let waiter = scenario.enqueue(next).await;
            assert!(held.write());
            held.release().await.unwrap();
            held = waiter.granted().await.0;
        }
        held.release().await.unwrap();
    }
    assert_eq!(scenario.checker.grants(), 15);
    let held = scenario.acquire(&scenario.a).await;
    held.assert_stays_held(TTL * 3 / 2).await;
    scenario.assert_recorded(&held, 1);
    scenario.assert_ends(held).await;
}

/// The process runs, and its renewal was sent.
async fn a_silence_is_not_taken_for_a_pause_of_ones_own() {
    // Longer than the others, so that a busy machine does not pause it.
    let scenario = Scenario::start_with(RedisServer::options(), TTL * 2).await;
    let held = scenario.acquire(&scenario.a).await;
    scenario.proxy.hold(Way::Both);
    let mut states = held.states();
    while let Some(state) = states.next().await {
        match state {
            State::Held { .. } => {}
            State::Jeopardy { cause, .. } | State::Lost(cause) => {
                assert_eq!(cause, Cause::Unreachable);
            }
        }
    }
}

/// Neither side is notified that the other is gone. The holder notices it by its own clock, and the next one is granted
/// the lock when the store has ended the lease.
async fn half_open(way: Way) {
    let contended = Contended::start().await;
    contended.proxy.swallow(way);
    let (scenario, held, next) = contended.lost().await;
    // A new connection works, the old ones never again.
    scenario.proxy.go_on();
    drop(held);
    let waiter = scenario.enqueue(&scenario.a).await;
    next.assert_stays_held(TTL / 2).await;
    next.release().await.unwrap();
    scenario.assert_ends(waiter.granted().await.0).await;
}

async fn a_holder_on_a_half_open_connection() {
    let [both, there, back] = [Way::Both, Way::ToServer, Way::ToClient].map(half_open);
    tokio::join!(both, there, back);
}

/// The store grants the lock to a waiter that does not receive the message. The next one is granted it when the time
/// for its acceptance is over; the first has to send its request again.
async fn a_waiter_on_a_half_open_connection() {
    let scenario = Scenario::start().await;
    let held = scenario.acquire(&scenario.b).await;
    let unreachable = scenario.enqueue_patient(&scenario.a).await;
    let next = scenario.enqueue(&scenario.another_client().await).await;
    scenario.proxy.swallow(Way::Both);
    let released = BootClock.now();
    held.release().await.unwrap();
    let (next, at) = next.granted().await;
    let took = at.since(released);
    assert!(took < TTL * 3 / 2, "{took:?}");
    scenario.proxy.go_on();
    eventually_async(SOON, async || scenario.queue() == 1).await;
    assert!(unreachable.is_waiting());
    next.release().await.unwrap();
    scenario.assert_ends(unreachable.granted().await.0).await;
}

/// The grant arrives when it has expired, and another holds the lock.
async fn a_late_notification_of_a_grant() {
    let scenario = Scenario::start().await;
    let held = scenario.acquire(&scenario.b).await;
    let late = scenario.enqueue_patient(&scenario.a).await;
    let next = scenario.enqueue(&scenario.another_client().await).await;
    scenario.proxy.hold(Way::ToClient);
    held.release().await.unwrap();
    let (next, _) = next.granted().await;
    scenario.proxy.go_on();
    next.assert_stays_held(TTL / 2).await;
    assert!(late.is_waiting());
    scenario.assert_recorded(&next, 1);
    next.release().await.unwrap();
    scenario.assert_ends(late.granted().await.0).await;
}

/// The grant arrives just in time: what is left of it is known.
async fn a_notification_of_a_grant_just_in_time() {
    let scenario = Scenario::start().await;
    let held = scenario.acquire(&scenario.b).await;
    let late = scenario.enqueue(&scenario.a).await;
    scenario.proxy.hold(Way::ToClient);
    let released = BootClock.now();
    held.release().await.unwrap();
    // A third of the time for the acceptance.
    tokio::time::sleep(TTL / 9).await;
    scenario.proxy.go_on();
    let (late, at) = late.granted().await;
    let took = at.since(released);
    assert!(took >= TTL / 9, "{took:?}");
    late.assert_stays_held(TTL).await;
    scenario.assert_ends(late).await;
}

/// The holder notices the end of the connection at once.
async fn a_connection_that_is_cut_and_no_new_one() {
    let contended = Contended::start().await;
    contended.proxy.refuse();
    contended.proxy.cut();
    contended.held.until_in_jeopardy().await;
    let (scenario, _held, next) = contended.lost().await;
    scenario.proxy.go_on();
    scenario.assert_ends(next).await;
}

/// Wherever a connection breaks, each request is applied once.
async fn a_connection_that_is_cut_at_every_byte() {
    let scenario = Scenario::start().await;
    for way in [Way::ToServer, Way::ToClient] {
        for bytes in (1..900).step_by(23) {
            scenario.proxy.cut_after(way, bytes);
            let held = scenario.acquire(&scenario.a).await;
            scenario.assert_recorded(&held, 1);
            assert!(held.write());
            // Its reply may be cut off. Then it is repeated.
            let _ = held.release().await;
            eventually_async(SOON, async || scenario.record().is_empty()).await;
        }
    }
    scenario.assert_clean_end().await;
}

/// No connection lasts for long, and no lease is lost.
async fn connections_that_are_killed_in_a_loop() {
    let scenario = Scenario::start().await;
    let all = acquire_each(&scenario.a, 3, TTL).await;
    let kills = async {
        for nth in (0..5).cycle() {
            scenario.server.cli(&["CLIENT", "KILL", "USER", "default"]);
            tokio::time::sleep(MILLIS * (20 + 25 * nth)).await;
        }
    };
    tokio::select! {
        () = kills => {}
        () = assert_all_stay_held(&all, TTL) => {}
    }
    for held in all {
        // Its connection may just have been killed. Then it is repeated.
        let _ = held.release().await;
    }
    scenario.assert_clean_end().await;
}

schedules! {
    connections_that_are_killed_in_a_loop,
    a_silence_is_not_taken_for_a_pause_of_ones_own,
    latency_and_jitter,
    a_holder_on_a_half_open_connection,
    a_waiter_on_a_half_open_connection,
    a_late_notification_of_a_grant,
    a_notification_of_a_grant_just_in_time,
    a_connection_that_is_cut_and_no_new_one,
    a_connection_that_is_cut_at_every_byte,
}
