//! Requests that ran, and whose replies were lost.

use leasehold::{Cause, ErrorKind, Owner};
use leasehold_testkit::{RedisServer, Then, eventually_async};

use super::checker::in_jeopardy;
use super::runner::{Schedule, run, run_all};
use super::scenario::{Scenario, TTL};
use crate::waiters::SOON;

const THEN: [Then; 2] = [Then::Silent, Then::Cut];

async fn of_an_acquire() {
    for then in THEN {
        let scenario = Scenario::start().await;
        scenario.proxy.lose_replies("queue", 2, then);
        let held = scenario.acquire(&scenario.a).await;
        assert_eq!(scenario.proxy.tally().replies_lost, 2);
        // Three questions ran, and they were one.
        scenario.assert_recorded(&held, 1);
        let counter = scenario.server.cli(&["GET", &scenario.key(":token")]);
        assert_eq!(counter, held.token().to_string());
        assert!(held.write());
        held.assert_stays_held(TTL).await;
        held.release().await.unwrap();
        assert_eq!(scenario.record(), "");
        scenario.assert_clean_end().await;
    }
}

/// Who asks only once asks a second time if nobody answered.
async fn of_a_question_that_does_not_wait() {
    for then in THEN {
        let scenario = Scenario::start().await;
        scenario.proxy.lose_replies("queue", 1, then);
        let guard = scenario
            .mutex(&scenario.a)
            .try_lock()
            .await
            .unwrap()
            .unwrap();
        let held = scenario.checker.granted(guard);
        scenario.assert_recorded(&held, 1);
        held.release().await.unwrap();
        scenario.assert_clean_end().await;
    }
}

async fn of_a_renewal() {
    tokio::join!(of_one_renewal(Then::Silent), of_one_renewal(Then::Cut));
}

async fn of_one_renewal(then: Then) {
    // The second renewal must be answered in time, also on a busy machine.
    let scenario = Scenario::start_with(RedisServer::options(), TTL * 2).await;
    let held = scenario.acquire(&scenario.a).await;
    let waiter = scenario.enqueue(&scenario.b).await;
    scenario.proxy.lose_replies(&scenario.renewals(), 1, then);
    held.until_in_doubt().await;
    held.until(|state| state.is_held()).await;
    assert_eq!(scenario.proxy.tally().replies_lost, 1);
    held.assert_stays_held(TTL).await;
    scenario.assert_recorded(&held, 1);
    assert!(waiter.is_waiting() && held.write());
    held.release().await.unwrap();
    let (next, _) = waiter.granted().await;
    assert!(next.write());
    drop(next);
    scenario.assert_clean_end().await;
}

/// The store has renewed all the time; the holder does not know.
async fn of_all_renewals() {
    let scenario = Scenario::start().await;
    let held = scenario.acquire(&scenario.a).await;
    let waiter = scenario.enqueue(&scenario.b).await;
    let notified = held.loss_notification();
    scenario
        .proxy
        .lose_replies(&scenario.renewals(), usize::MAX, Then::Cut);
    in_jeopardy(held.until_in_doubt().await, &[Cause::Unreachable]);
    held.until(|state| state.is_lost()).await;
    assert!(scenario.ttl_left() > TTL / 3, "{:?}", scenario.ttl_left());
    let (next, at) = waiter.granted().await;
    notified.before(at).await;
    assert!(next.write() && !held.write());
    drop(next);
    scenario.assert_clean_end().await;
}

async fn of_a_release() {
    for then in THEN {
        let scenario = Scenario::start().await;
        let held = scenario.acquire(&scenario.a).await;
        let waiter = scenario.enqueue(&scenario.b).await;
        scenario.proxy.lose_replies("release", 2, then);
        let error = held.release().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        // It ran, and what is repeated of it harms nobody.
        let (next, _) = waiter.granted().await;
        eventually_async(SOON, async || scenario.proxy.tally().replies_lost == 2).await;
        next.assert_stays_held(TTL).await;
        scenario.assert_recorded(&next, 1);
        next.release().await.unwrap();
        scenario.assert_clean_end().await;
    }
}

async fn of_a_re_entry() {
    for then in THEN {
        let scenario = Scenario::start().await;
        let mutex = scenario.mutex(&scenario.a).owned_by(&Owner::new());
        let outer = scenario.checker.granted(mutex.lock().await.unwrap());
        scenario.proxy.lose_replies("enter", 1, then);
        let error = mutex.lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        assert_eq!(scenario.proxy.tally().replies_lost, 1);
        // It is left again, as nobody got it.
        scenario.until_recorded(&outer, 1).await;
        outer.until(|state| state.is_held()).await;
        let inner = mutex.lock().await.unwrap();
        assert_eq!(inner.token(), outer.token());
        scenario.assert_recorded(&outer, 2);
        inner.release().await.unwrap();
        scenario.assert_recorded(&outer, 1);
        outer.release().await.unwrap();
        assert_eq!(scenario.record(), "");
        scenario.assert_clean_end().await;
    }
}

async fn of_an_inner_release() {
    for then in THEN {
        let scenario = Scenario::start().await;
        let mutex = scenario.mutex(&scenario.a).owned_by(&Owner::new());
        let outer = scenario.checker.granted(mutex.lock().await.unwrap());
        let inner = mutex.lock().await.unwrap();
        scenario.proxy.lose_replies("release", 1, then);
        let error = inner.release().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        scenario.until_recorded(&outer, 1).await;
        outer.until(|state| state.is_held()).await;
        outer.assert_stays_held(TTL).await;
        scenario.assert_recorded(&outer, 1);
        outer.release().await.unwrap();
        scenario.assert_clean_end().await;
    }
}

schedules! {
    of_an_acquire,
    of_a_question_that_does_not_wait,
    of_a_renewal,
    of_all_renewals,
    of_a_release,
    of_a_re_entry,
    of_an_inner_release,
}

/// A renewal fails just when the end of its connection is notified. Whichever is heard of first, the lease
/// is renewed again. So often, because the two seldom cross.
#[test]
fn of_a_renewal_many_times() {
    let once: Schedule = ("once", || run(of_one_renewal(Then::Silent)));
    run_all(&[once; 24]);
}
