//! A network that is slow, stands still, swallows and cuts.

use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::{Cause, State};
use leasehold_testkit::{RedisServer, Way, eventually_async};

use super::checker::{in_jeopardy, lost};
use super::scenario::{Scenario, TTL};
use crate::waiters::SOON;

const MILLIS: Duration = Duration::from_millis(1);

/// Both clients do their turns, however long each message takes.
async fn latency_and_jitter() {
    let scenario = Scenario::start().await;
    scenario.proxy.delay(Way::Both, MILLIS * 25..=MILLIS * 75);
    for _ in 0..5 {
        let held = scenario.acquire(&scenario.a).await;
        let waiter = scenario.enqueue(&scenario.b).await;
        assert!(held.write());
        held.release().await.unwrap();
        let (held, _) = waiter.granted().await;
        let waiter = scenario.enqueue(&scenario.a).await;
        assert!(held.write());
        held.release().await.unwrap();
        let (held, _) = waiter.granted().await;
        held.release().await.unwrap();
    }
    assert_eq!(scenario.checker.grants(), 15);
    let held = scenario.acquire(&scenario.a).await;
    held.assert_stays_held(TTL * 3 / 2).await;
    scenario.assert_recorded(&held, 1);
    held.release().await.unwrap();
    scenario.assert_clean_end().await;
}

/// The process runs, and its renewal was sent.
async fn a_silence_is_not_taken_for_a_pause_of_ones_own() {
    // Longer than the others, so that a busy machine does not pause it.
    let scenario = Scenario::start_with(RedisServer::options(), TTL * 4).await;
    let held = scenario.acquire(&scenario.a).await;
    scenario.proxy.hold(Way::Both);
    let mut states = held.states();
    while let Some(state) = states.next().await {
        match state {
            State::Held { .. } => {}
            State::Jeopardy { .. } => in_jeopardy(state, &[Cause::Unreachable]),
            State::Lost(_) => lost(state, &[Cause::Unreachable]),
        }
    }
}

/// Shorter than the time for an answer: nobody notices anything.
async fn short_stalls() {
    let scenario = Scenario::start().await;
    let held = scenario.acquire(&scenario.a).await;
    let stalls = async {
        for way in [Way::There, Way::Back, Way::Both].into_iter().cycle() {
            scenario.proxy.hold(way);
            tokio::time::sleep(MILLIS * 60).await;
            scenario.proxy.go_on();
            tokio::time::sleep(MILLIS * 20).await;
        }
    };
    tokio::select! {
        () = stalls => {}
        () = held.assert_stays_held(TTL * 3 / 2) => {}
    }
    scenario.proxy.go_on();
    held.release().await.unwrap();
    scenario.assert_clean_end().await;
}

/// Neither side is notified that the other is gone. The holder learns by its own clock, the next has the
/// lock when the store has ended the lease.
async fn half_open(way: Way) {
    let scenario = Scenario::start().await;
    let held = scenario.acquire(&scenario.a).await;
    let waiter = scenario.enqueue(&scenario.b).await;
    let notified = held.loss_notification();
    scenario.proxy.swallow(way);
    held.until_in_doubt().await;
    held.until(|state| state.is_lost()).await;
    lost(held.state(), &[Cause::Unreachable]);
    let (next, at) = waiter.granted().await;
    notified.before(at).await;
    assert!(next.write() && !held.write());
    // A new connection works, the old ones never again.
    scenario.proxy.go_on();
    drop(held);
    let waiter = scenario.enqueue(&scenario.a).await;
    next.assert_stays_held(TTL / 2).await;
    next.release().await.unwrap();
    let (last, _) = waiter.granted().await;
    last.release().await.unwrap();
    scenario.assert_clean_end().await;
}

async fn a_holder_on_a_half_open_connection() {
    half_open(Way::Both).await;
}

async fn a_holder_whose_requests_are_swallowed() {
    half_open(Way::There).await;
}

async fn a_holder_whose_answers_are_swallowed() {
    half_open(Way::Back).await;
}

/// The store grants the lock to a waiter that does not hear it. The next has it when the time to
/// accept it is over; the deaf one has it when it has asked again.
async fn a_waiter_on_a_half_open_connection() {
    let scenario = Scenario::start().await;
    let held = scenario.acquire(&scenario.b).await;
    let deaf = scenario.enqueue(&scenario.a).await;
    let next = scenario.enqueue(&scenario.another_client().await).await;
    scenario.proxy.swallow(Way::Both);
    let released = BootClock.now();
    held.release().await.unwrap();
    let (next, at) = next.granted().await;
    let took = at.since(released);
    assert!(took < TTL * 3 / 2, "{took:?}");
    scenario.proxy.go_on();
    eventually_async(SOON, async || scenario.queue() == 1).await;
    assert!(deaf.is_waiting());
    next.release().await.unwrap();
    let (deaf, _) = deaf.granted().await;
    assert!(deaf.write());
    deaf.release().await.unwrap();
    scenario.assert_clean_end().await;
}

/// The grant arrives when it is over, and another has the lock.
async fn a_late_notification_of_a_grant() {
    let scenario = Scenario::start().await;
    let held = scenario.acquire(&scenario.b).await;
    let late = scenario.enqueue(&scenario.a).await;
    let next = scenario.enqueue(&scenario.another_client().await).await;
    scenario.proxy.hold(Way::Back);
    held.release().await.unwrap();
    let (next, _) = next.granted().await;
    scenario.proxy.go_on();
    next.assert_stays_held(TTL / 2).await;
    assert!(late.is_waiting());
    scenario.assert_recorded(&next, 1);
    next.release().await.unwrap();
    let (late, _) = late.granted().await;
    assert!(late.write());
    late.release().await.unwrap();
    scenario.assert_clean_end().await;
}

/// The grant arrives just in time: what is left of it is known.
async fn a_notification_of_a_grant_just_in_time() {
    let scenario = Scenario::start().await;
    let held = scenario.acquire(&scenario.b).await;
    let late = scenario.enqueue(&scenario.a).await;
    scenario.proxy.hold(Way::Back);
    let released = BootClock.now();
    held.release().await.unwrap();
    tokio::time::sleep(TTL / 4).await;
    scenario.proxy.go_on();
    let (late, at) = late.granted().await;
    let took = at.since(released);
    assert!(took >= TTL / 4, "{took:?}");
    assert!(late.write());
    late.assert_stays_held(TTL).await;
    late.release().await.unwrap();
    scenario.assert_clean_end().await;
}

/// Nobody is reached any more, which is known at once.
async fn a_connection_that_is_cut_and_no_new_one() {
    let scenario = Scenario::start().await;
    let held = scenario.acquire(&scenario.a).await;
    let waiter = scenario.enqueue(&scenario.b).await;
    let notified = held.loss_notification();
    scenario.proxy.refuse();
    scenario.proxy.cut();
    let state = held.until_in_doubt().await;
    in_jeopardy(state, &[Cause::Unreachable]);
    lost(
        held.until(|state| state.is_lost()).await,
        &[Cause::Unreachable],
    );
    let (next, at) = waiter.granted().await;
    notified.before(at).await;
    assert!(next.write() && !held.write());
    next.release().await.unwrap();
    scenario.proxy.go_on();
    scenario.assert_clean_end().await;
}

/// Wherever a connection breaks, each question is asked once.
async fn a_connection_that_is_cut_at_every_byte() {
    let scenario = Scenario::start().await;
    for way in [Way::There, Way::Back] {
        for bytes in (1..900).step_by(23) {
            scenario.proxy.cut_after(way, bytes);
            let held = scenario.acquire(&scenario.a).await;
            scenario.assert_recorded(&held, 1);
            assert!(held.write());
            // Its answer may be what is cut off. Then it is notified once more.
            let _ = held.release().await;
            eventually_async(SOON, async || scenario.record().is_empty()).await;
        }
    }
    scenario.assert_clean_end().await;
}

schedules! {
    a_silence_is_not_taken_for_a_pause_of_ones_own,
    latency_and_jitter,
    short_stalls,
    a_holder_on_a_half_open_connection,
    a_holder_whose_requests_are_swallowed,
    a_holder_whose_answers_are_swallowed,
    a_waiter_on_a_half_open_connection,
    a_late_notification_of_a_grant,
    a_notification_of_a_grant_just_in_time,
    a_connection_that_is_cut_and_no_new_one,
    a_connection_that_is_cut_at_every_byte,
}
